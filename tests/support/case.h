// A problem of quire_attention as a test writes it down. Letters as in quire.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "src/format.h"
#include "tests/support/guarded.h"

namespace quire::test {

struct Lengths {
    int64_t queries, keys;
    uint64_t id =
        0;  // of its numbers: two sequences with one id hold the same; 0: its place in the batch + 1
};

// Where the rows of a sequence are: dense (no cachestarts), from an offset on, or in pages. The sequences
// (the pages) lie in random order with dead rows between them.
enum class Placement { dense, offsets, pages };

// A layout where a page holds the rows of all its heads, one head behind the other; without pages PMX's 3.
constexpr int kWholePages = 4;

struct Case {
    quire_type type = QUIRE_F32;  // of query and output
    quire_format key_format = {QUIRE_F32, 0, QUIRE_NONE};
    quire_format value_format = {QUIRE_F32, 0, QUIRE_NONE};
    int H = 1, Hk = 1, D = 64, Dv = 64;
    bool value_in_key = false;  // as in MLA: a value is the first Dv elements of its key, of one format
    std::vector<Lengths> sequences;

    Placement placement = Placement::dense;
    int page_size = 16;        // with Placement::pages
    int layout = 0;            // strides of a PMX cache_layout; kWholePages
    Flush flush = Flush::end;  // which guard pages the tensors touch
    bool unaligned = false;    // all tensors begin at odd addresses
    bool clean = false;        // what is no live number is 0, not NaN
    bool spread = false;       // gaps between the rows of query, output and lse, and in the index tensors

    quire_precision precision = QUIRE_PRECISION_HIGHEST;
    float scale = 0;
    bool causal = false, alibi = false;
    int causal_corner = 0;
    bool positions = false;   // query_positions, drawn from before the keys to past them
    bool key_ranges = false;  // key_begin and key_end, drawn
    bool has_window = false;
    int window_left = -1, window_right = -1;
    float soft_cap = 0;
    int mask_rank = 0;                 // 0: no mask
    bool mask_shared = false;          // rank 3: [1, n, columns], not [H, n, columns]
    quire_type mask_type = QUIRE_F32;  // or F16, BF16, BOOL
    bool mask_runs = false;            // long runs of 0 and of -inf, as runtimes make them; else numbers
    bool mask_slopes = false;          // attn_mask_slopes, but for a BOOL mask
    bool tree = false;                 // tree_mask, drawn
    bool sinks = false;
    int64_t decoding_batches = 0;
    bool lse = true;
    uint64_t seed = 1;        // of all numbers
    uint64_t order_seed = 1;  // of the order of sequences or pages

    bool has_whole_pages() const { return layout == kWholePages && placement == Placement::pages; }
    int group() const { return H / Hk; }
    // Rows of the cache that a sequence or a page takes are a multiple of this.
    int64_t row_step() const { return std::max(tokens_of_block(key_format), tokens_of_block(value_format)); }
    // Makes page_size and placement those that blocks of tokens can have.
    void fit_to_blocks();
    bool has_slopes() const { return mask_slopes && mask_rank != 0 && mask_type != QUIRE_BOOL; }
    int64_t B() const { return int64_t(sequences.size()); }
    int64_t n() const;               // query tokens of all sequences
    int64_t all_keys() const;        // kvstarts[B]
    double multiplications() const;  // of the two products, for budgets

    // Of the numbers of sequence b.
    uint64_t id(int64_t b) const;
    int64_t position(int64_t b, int64_t i) const;
    void key_range(int64_t b, int64_t* begin, int64_t* end) const;
    // Keys that query i of sequence b sees before any mask, as the header says it.
    void visible(int64_t b, int64_t i, int64_t* begin, int64_t* end) const;

    // All that is needed to type the case in again.
    std::string name() const;
};

std::ostream& operator<<(std::ostream& out, const Case& c);

quire_format plain_format(quire_type type);  // or of blocks
quire_format quantised(quire_type type, int group, quire_type scale_type);

// Formats whose scales are in their rows.
std::vector<quire_type> block_types();
// Of blocks of tokens.
std::vector<quire_type> token_block_types();

quire_attention_desc desc_of(const Case& c);

}  // namespace quire::test
