// One part a format of codes: turns the bytes of cache rows into signed 16-bit words, the operands of integer
// dot products. As RowLoader for f32 lanes; kernels only know this interface.
//
// Keys: a chunk of 4 L elements is two vectors of words, so that the dot products of both add up in a lane
// whose scale is one. Values: a pair of rows is interleaved, so that a lane adds up one element of two keys.
#pragma once
#include <memory>
#include <vector>

#include "jit/emitter.h"
#include "src/format.h"

namespace quire::jit {

// Formats whose rows can be words: their codes are, and four elements next to each other share a scale.
bool has_words(const quire_format& format);

// Elements of a key row in the order of its words, -1 for padding: [chunks][2][2 L].
std::vector<int> word_order(const quire_format& format, int dim, int lanes);

// Pairs of words that a chunk puts into one lane have elements 2 i and 2 i + 1, or, where the middle two of
// four change places first, 4 i and 4 i + 2, 4 i + 1 and 4 i + 3.
bool swaps_middle(const quire_format& format);

class WordLoader {
public:
    static std::unique_ptr<WordLoader> make(Emitter& e, const quire_format& format, int dim);
    WordLoader(Emitter& e, const quire_format& format, int dim) : e_(e), format_(format), dim_(dim) {}
    virtual ~WordLoader() = default;

    int chunks() const { return (dim_ + 4 * e_.lanes() - 1) / (4 * e_.lanes()); }
    // The group of a lane's elements, of each lane; padding repeats the last.
    std::vector<int> key_groups(int chunk) const;
    virtual void load_keys(const Vec& a, const Vec& b, int chunk, const RegExp& row) = 0;

    // Vectors vec and vec + 1 of a pair of value rows (vec is even), in an order of their own; the group of
    // each lane.
    virtual void load_values(const Vec* v, int vec, const RegExp& first, const RegExp& second) = 0;
    // The same of codes at the upper ends of words, what is below them being 0 (int8, int4).
    virtual void load_value_tops(const Vec* v, int vec, const RegExp& first, const RegExp& second) {
        load_values(v, vec, first, second);
        for (int i : {0, 1}) e_.vpsllw(v[i], v[i], 8);
    }
    virtual std::vector<int> value_groups(int vec) const = 0;
    // From that order to the order of elements, within and of vectors.
    virtual void restore_order(const Vec* v) = 0;
    virtual int value_vec(int vec) const { return vec; }

protected:
    int group_of(int element) const;
    int left(int first) const { return dim_ - first; }

    Emitter& e_;
    const quire_format format_;
    const int dim_;
};

}  // namespace quire::jit
