// Drives the generated kernels over one work item. attend_rows: few query rows (decode); attend_tiles: many.
#pragma once
#include <immintrin.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "jit/token_qk_bytes.h"
#include "src/combine.h"

namespace quire {

// Memory of one thread, kept from call to call; a bump allocator of 64-byte aligned float arrays.
class Scratch {
public:
    void reserve(size_t floats);
    void reset() { used_ = 0; }
    float* floats(size_t count);
    template <typename T>
    T* array(size_t count) {
        return reinterpret_cast<T*>(floats((count * sizeof(T) + 3) / 4));
    }

private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<float, Free> memory_;
    size_t capacity_ = 0, used_ = 0;
};

// Enough for any item of the plan.
size_t scratch_floats(const AttentionPlan& plan);

// `following`: what this thread runs next, if known; its first rows are fetched ahead.
class KeptQueries;
void attend_rows(const AttentionPlan& plan, const AttentionProblem& problem, const HeadItems& items,
                 const HeadItems& following, KeptQueries& queries, Scratch& scratch, States& states);
void attend_tiles(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                  const Item* following, Scratch& scratch, States& states);

// Scratch memory of attend_rows for what its kv heads have of their own.
size_t head_floats(const AttentionPlan& plan);

// Of a value row, where attend_rows may copy it beside others; 0: never.
int64_t copied_value_bytes(const AttentionPlan& plan);

// ---- what both share ----

// Kernels may have tiles of AMX.
class WithAmxTiles {
public:
    explicit WithAmxTiles(const jit::AmxTiles& tiles) : tiles_(tiles) {
        if (tiles_.begin) tiles_.begin({});
    }
    ~WithAmxTiles() {
        if (tiles_.end) tiles_.end({});
    }
    WithAmxTiles(const WithAmxTiles&) = delete;

private:
    const jit::AmxTiles& tiles_;
};

// Addresses of a range of cache rows of one kv head. Of blocks of tokens: as jit/args.h says, and no scales.
struct RowAddresses {
    static constexpr int kEntries = jit::kTileKeys + jit::kRowsSoon;
    const char *key[kEntries], *value[kEntries];
    // Of their scales: blocks hold them, and these point to the lists above. Of adjacent rows lists have one
    // entry.
    const char *const *key_scale, *const *value_scale;
    int64_t begin, count;  // keys begin .. begin + count
    bool side_by_side;  // rows and scales; in decode as DecodeKernels::placement says, and none is repeated

    // The last row is repeated up to a multiple of kKeyPadding and at least `fill` entries.
    void set(const CacheView& cache, int64_t b, int kv_head, int64_t first, int64_t keys, int64_t fill);
    // The first of each list alone, where the keys are adjacent; false: they are not.
    bool set_adjacent(const CacheView& cache, int64_t b, int kv_head, int64_t first, int64_t keys);
    int64_t padded() const { return (count + jit::kKeyPadding - 1) / jit::kKeyPadding * jit::kKeyPadding; }

private:
    const char *key_scales_[kEntries], *value_scales_[kEntries];
};

// Whether values are views of keys, as in MLA.
inline bool are_views(const AttentionSpec& spec, const RowAddresses& rows) {
    const char *const key = rows.key[0], *const value = rows.value[0];
    return value >= key && value < key + bytes_of(spec.key_format.type, spec.D);
}

// Of such keys of the next block what QK asks for, and what PV does: rows, and their scales.
struct AskedHalves {
    const char *rows[2][jit::kBlock], *scales[2][jit::kBlock];
};

// Results of f32 operations below 2^-126 are 0 as long as it lives: an instruction that makes one takes
// Intel's cores more than 100 cycles, and under ALiBi most probabilities of far keys, and sums that are
// scaled again and again, pass through there. Outputs are written without it: those of half precision are
// subnormal from 2^-14 on, and while processors leave them to themselves, emulators need not (QEMU 7 does
// not).
class WithoutSubnormals {
public:
    WithoutSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON); }
    ~WithoutSubnormals() { _mm_setcsr(before_); }
    WithoutSubnormals(const WithoutSubnormals&) = delete;

private:
    const unsigned before_;
};

// Address of the query vector of query row `row`.
const char* query_at(const AttentionProblem& problem, const Item& item, int64_t row);

// Factor of the query: softmax scale and log2(e), or what the soft cap needs.
float query_factor(const AttentionSpec& spec);
// [stride] floats as words of 15 bits and a sign, in that order (jit::query_word_order); returns what they
// are to be multiplied by. NaN or Inf among them makes that NaN.
float query_to_words(const std::vector<int>& order, int stride, const float* query, int16_t* words);
// The query as bytes or digits, what sums of products with them start with, and their factors.
struct QueryBytes {
    int8_t* bytes;
    int32_t* starts;
    float* factors;
};
// For keys in fours (jit/qk_fours.h), of [chunks][parts][4 L] floats, 0 from `dim` on, and one more, which is
// read.
void query_to_fours(const jit::FoursForm& form, const float* query, int dim, const QueryBytes& to);
// Factor that turns tanh into log2 units; 0 without a soft cap.
float cap_factor(const AttentionSpec& spec);

// The item's rows, [rows][V], and their softmax: the output, or states.
void write_rows(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                const float* max, const float* sum, const float* output, States& states);

// What the score terms add for query row `row` and keys begin .. begin + count, in log2 units; hidden keys
// get -Inf.
void load_bias(const AttentionProblem& problem, const Item& item, int64_t row, int64_t begin, int64_t count,
               float* bias);

// Dropout among the probabilities of query row `row`, which the softmax has summed: they are `stride` floats
// apart.
void drop(const AttentionProblem& problem, const Item& item, int64_t row, int64_t begin, int64_t count,
          float* probabilities, int64_t stride);

}  // namespace quire
