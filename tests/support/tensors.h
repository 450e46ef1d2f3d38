// All tensors of a Case, each in a guarded buffer. Rows that no position uses, gaps between rows and what
// lies outside a sequence's block of the mask hold NaN and Inf (codes: garbage, with such scales).
#pragma once
#include <vector>

#include "tests/support/case.h"
#include "tests/support/random.h"

namespace quire::test {

// Streams of random numbers of a case.
enum Stream : uint64_t { kQuery, kKey, kValue, kMask, kTree, kSinks, kPlacement };

// NaN and Inf by turns; bytes that are no valid code.
void fill_dead(bool clean, GuardedBuffer* buffer, quire_type type);

// Keys or values: rows of `dim` elements and their scales.
struct CacheSide {
    quire_format format;
    Side side;
    int dim;
    GuardedBuffer rows, scales;
    quire_tensor rows_view, scales_view;  // [slots, Hk, dim], [slots, Hk, dim / G]; or blocks of tokens

    TokenPlace at(int64_t slot, int head) const;
    void store(int64_t slot, int head, const std::vector<float>& values);
    void load(int64_t slot, int head, float* values) const;  // dequantised
    // Spoils the row: its first element, or the scale of its first group or block, becomes `number` (NaN,
    // Inf).
    void poison(int64_t slot, int head, float number);
    // The row's scale of a group changes its sign, of formats with scales apart from their rows or of blocks
    // of tokens.
    void negate(int64_t slot, int head, int group);
};

class Tensors {
public:
    explicit Tensors(const Case& c);

    Case spec;  // of which precision alone may still be changed
    CacheSide key, value;
    GuardedBuffer query, mask, tree, sinks, slopes, seqstarts, kvstarts, cachestarts, positions, key_begin,
        key_end, output, lse;
    quire_tensor query_view, mask_view, tree_view, sinks_view, slopes_view, seqstarts_view, kvstarts_view,
        cachestarts_view, positions_view, key_begin_view, key_end_view, output_view, lse_view;

    int64_t slots() const { return slots_; }
    int64_t slot(int64_t b, int64_t t) const;  // where position t of sequence b is
    int64_t first_token(int64_t b) const { return starts_[size_t(b)]; }

    float query_at(int64_t token, int h, int d) const;
    // What mask and tree add to the score, -inf where they hide the key.
    float mask_at(int64_t token, int h, int64_t b, int64_t t) const;
    void set_mask(int64_t token, int h, int64_t b, int64_t t, float number);
    float sink(int h) const;
    float output_at(int64_t token, int h, int d) const;
    float lse_at(int64_t token, int h) const;

    quire_attention_args args() const;
    // Fills outputs with the sentinel; inputs become read-only until allow_writes().
    void prepare_run();
    void allow_writes();
    // Bytes of output and lse that belong to no element still hold the sentinel.
    bool gaps_intact() const;

    // ---- for tensors beyond these ----

    // [rows, heads, dim], with gaps where the case asks for them; without data.
    quire_tensor rows_of_heads(quire_type type, int64_t rows, int heads, int dim) const;
    // Memory for the view's extent; sets its data.
    GuardedBuffer allocate(quire_tensor* view) const;

private:
    void place();
    void make_indices();
    void make_query();
    void make_cache(CacheSide* side, const quire_format& format, int dim);
    void view_keys();
    void make_mask();
    void make_mask_row(int64_t token, int h, int64_t b);
    void make_slopes();
    void make_tree();
    void make_sinks();
    void make_outputs();
    std::vector<GuardedBuffer*> inputs();
    GuardedBuffer make_index(const std::vector<int64_t>& values, quire_tensor* view) const;

    int64_t slots_ = 0;
    std::vector<int64_t> starts_, key_starts_;      // [B + 1]
    std::vector<std::vector<int64_t>> row_starts_;  // [B][pages], one entry where there are no pages
    std::vector<uint8_t> output_gaps_, lse_gaps_;   // 1: no element's byte
};

// Bytes from the first to past the last element.
size_t extent(const quire_tensor& view);
char* element(const quire_tensor& view, int64_t i, int64_t j, int64_t k = 0);

}  // namespace quire::test
