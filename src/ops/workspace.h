// Memory of a run for tensors of the operator's own.
#pragma once
#include <vector>

namespace quire {

inline size_t up_to_64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Pieces of Run::workspace, one after the other. `bytes` is the sum of up_to_64 of each.
class Workspace {
public:
    Workspace(std::vector<char>* memory, size_t bytes) {
        if (memory->size() < bytes + 64) memory->resize(bytes + 64);
        at_ = reinterpret_cast<char*>(up_to_64(reinterpret_cast<size_t>(memory->data())));
    }
    char* take(size_t bytes) {
        char* begin = at_;
        at_ += up_to_64(bytes);
        return begin;
    }

private:
    char* at_;
};

}  // namespace quire
