// Sequences, heads and formats of a valid call, small.
#pragma once
#include <algorithm>
#include <vector>

#include "tests/fuzz/call.h"

namespace quire::fuzz {

enum class Placement { dense, offsets, pages };

struct Batch {
    std::vector<int64_t> queries, keys;  // of each sequence
    std::vector<int64_t> seqstarts, kvstarts;
    // Set by place_rows().
    std::vector<int64_t> cachestarts;
    int64_t page_size = 0, max_pages = 0, slots = 0;

    int64_t B() const { return int64_t(queries.size()); }
    int64_t n() const { return seqstarts.back(); }
    int64_t longest_queries() const { return longest(queries); }
    int64_t longest_keys() const { return longest(keys); }
    int64_t start_pos(size_t b) const { return keys[b] - queries[b]; }
    std::vector<int64_t> start_positions() const {
        std::vector<int64_t> all;
        for (size_t b = 0; b < keys.size(); ++b) all.push_back(start_pos(b));
        return all;
    }
    bool same_start() const {
        for (size_t b = 1; b < keys.size(); ++b)
            if (start_pos(b) != start_pos(0)) return false;
        return B() > 0;
    }
    std::vector<int64_t> table_shape() const {
        return page_size == 0 ? std::vector<int64_t>{B()} : std::vector<int64_t>{B(), max_pages};
    }

private:
    static int64_t longest(const std::vector<int64_t>& lengths) {
        return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    }
};

struct Heads {
    int64_t H, Hk, D;
    bool small;  // few and short heads: there is room for many tokens
};

Heads draw_heads(Source& source);
int64_t draw_size(Source& source, bool small);  // of a head
enum class Blocks { none, of_tokens, any };     // any: ggml's too
quire_format draw_format(Source& source, int64_t dim, Blocks blocks = Blocks::none);
// One length of queries, or of keys, for all sequences where asked for; then there is at least one. With
// `cached` the queries are the last keys (and same_keys means the same start_pos).
Batch draw_batch(Source& source, bool small, bool same_queries, bool same_keys, bool cached);
// Rows for the keys of each sequence, with gaps between them. Sequences and pages begin, and the slots end,
// at multiples of `grid`.
void place_rows(Source& source, Placement placement, Batch* batch, int64_t grid = 1);

}  // namespace quire::fuzz
