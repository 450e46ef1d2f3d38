// What the tests of single kernels share: cache rows that each lie against a guard page of their own, arrays
// of exactly the documented length, and the definition to hold the results against.
#pragma once
#include <cmath>
#include <vector>

#include "jit/kernel_key.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"
#include "tests/support/trampoline.h"

namespace quire::test {

// How a kernel sequence is run; neither may change a bit of its result.
struct Surroundings {
    Entry entry = Entry::nan;
    float scratch = NAN;  // what buffers that kernels write hold before
    Flush flush = Flush::end;
    jit::Placement placement = jit::Placement::listed;  // where there are kernels of it
};

// An array of exactly `count` elements, all `value`.
template <typename T>
GuardedBuffer array(size_t count, T value, Flush flush) {
    GuardedBuffer buffer(count * sizeof(T), flush);
    buffer.fill_with(value);
    return buffer;
}

class KernelRows {
public:
    KernelRows(const jit::RowKey& key, int count, Random* random, Flush flush, Side side = Side::key);

    int count() const { return int(values_.size()); }
    const std::vector<float>& values(int row) const { return values_[size_t(row)]; }  // dequantised
    // Of a format with scales apart from its rows, or of blocks of tokens; some of those of some instances
    // are negative.
    float scale(int row, int group) const;
    // Addresses of `length` rows from `first` on, the last of `count` rows repeated. Blocks of tokens, which
    // begin at `first`: the address of each once, between addresses that nothing may touch.
    GuardedBuffer rows(int first, int count, int length) const;
    GuardedBuffer scales(int first, int count, int length) const;
    // The same as kernels of a placement take it; the rows are added to `held` where they lie side by side,
    // which those of blocks of tokens do not.
    GuardedBuffer placed(jit::Placement placement, int first, int count, int length, bool of_scales,
                         std::vector<GuardedBuffer>* held) const;
    // A list for QK and PV: behind it are addresses that only a prefetch may touch.
    static GuardedBuffer and_soon(const GuardedBuffer& list);
    // Addresses that only a prefetch may touch.
    static GuardedBuffer nowhere(int length);

private:
    void add_to_block(Side side, Flush flush, Random* random, std::vector<float>* numbers);
    void negate_some(Random* random, void* scales, int first, int step) const;

    const jit::RowKey key_;
    const bool scales_in_rows_;
    bool negative_ = false;
    const int step_;  // rows of a buffer of rows_
    std::vector<GuardedBuffer> rows_, scales_;
    std::vector<std::vector<float>> values_;
};

// Formats and head sizes that a kernel test goes through: every loader, whole vectors and tails, groups from
// one element to the whole row.
struct RowShape {
    quire_format format;
    int dim;
};

// Whether kernels of decode take keys of such a shape as such products; values as words.
bool can_be_words(const quire_format& format);
bool is_of_tiles(jit::Products products);  // of AMX
bool can_be(const RowShape& shape, const Target& target, jit::Products products);
std::vector<RowShape> row_shapes();
// The same of blocks of tokens.
std::vector<RowShape> token_shapes();

// A code cache for the test's kernels, one for the whole program.
jit::CodeCache& test_code_cache();

inline jit::Products words_if(bool words) { return words ? jit::Products::words : jit::Products::floats; }
// What keys and values of tiles are products of where `wanted` can't be: of floats; and beside bytes, where
// values are none, what goes with them.
jit::Products key_products(const jit::RowKey& key, jit::Products wanted);
jit::Products value_products(const jit::RowKey& key, jit::Products wanted);

inline int padded_keys(int count) {
    return (count + jit::kKeyPadding - 1) / jit::kKeyPadding * jit::kKeyPadding;
}

}  // namespace quire::test
