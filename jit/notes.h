// What an emitter says of the code while it emits it, for annotated listings: which register has which name
// from where on, and stages. Nobody collects them in normal use.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace quire::jit {

struct Note {
    enum Kind {
        stage,            // `text` begins here
        vector_register,  // register `index` is called `text` from here on; "": by no name
        general_register,
        data  // no more instructions
    };
    size_t offset;
    Kind kind;
    int index;
    std::string text;
};
using Notes = std::vector<Note>;

// While one lives, what this thread emits is noted.
class CollectNotes {
public:
    explicit CollectNotes(Notes* notes) : outer_(t_current) { t_current = notes; }
    ~CollectNotes() { t_current = outer_; }
    CollectNotes(const CollectNotes&) = delete;

    static void add(size_t offset, Note::Kind kind, int index, const std::string& text) {
        if (t_current != nullptr) t_current->push_back({offset, kind, index, text});
    }

private:
    static inline thread_local Notes* t_current = nullptr;
    Notes* const outer_;
};

}  // namespace quire::jit
