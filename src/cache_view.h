// Cached keys and values: how rows are stored and where each position of a sequence is.
#pragma once
#include <cstdlib>

#include "src/tensors.h"

namespace quire {

struct CacheSpec {
    int Hk, D, Dv;
    quire_format key_format, value_format;
    int64_t page_size;  // 0: offsets
};

// Rows of keys and values and where each position of a sequence is.
struct CacheView {
    RowView key, value;
    RowView key_scale, value_scale;  // base null: no scales; of blocks: the rows, or blocks, which hold them
    IndexView starts;                // [B] or [B, MaxP]; none: position t is row t of the sequence
    int64_t page_size = 0;           // 0: offsets
    bool batched = false;            // every sequence has rows of its own: [B, T, Hk, ...]
    int64_t slots = 0;               // rows, of one sequence where batched
    int64_t max_pages = 0;
    bool adjacent = false;  // the rows of a head follow each other without a gap, and so do their scales
    quire_type blocks = QUIRE_NONE;  // of tokens: starts and pages are multiples of kBlockTokens; NONE: none
    int64_t row(int64_t b, int64_t t) const {
        if (!starts) return t;
        return page_size == 0 ? starts(b) + t : starts(b, t / page_size) + t % page_size;
    }
    // Whether these positions are in one page, in rows without a gap.
    bool side_by_side(int64_t t, int64_t count) const {
        return adjacent && (page_size == 0 || t % page_size + count <= page_size);
    }
    // Whether the rows of another head lie between those of one.
    bool heads_interleave() const { return std::abs(key.head_stride) < std::abs(key.row_stride); }
    // Whether more than a page lies between the rows of one head and those of the next.
    bool heads_apart() const {
        const int64_t rows = page_size / (blocks == QUIRE_NONE ? 1 : kBlockTokens);
        return !heads_interleave() && std::abs(key.head_stride) > std::abs(key.row_stride) * rows;
    }
    TokenPlace key_at(int64_t b, int64_t row, int64_t head) const {
        return {key.at(b, row, head), key_scale.at(b, row, head), int(row % kBlockTokens)};
    }
    TokenPlace value_at(int64_t b, int64_t row, int64_t head) const {
        return {value.at(b, row, head), value_scale.at(b, row, head), int(row % kBlockTokens)};
    }
};

struct CacheTensors {
    const quire_tensor *key, *value;  // [slots, Hk, D or Dv] or [B, T, Hk, D or Dv]; of blocks of tokens
                                      // [slots / 16, Hk, bytes] or [B, T / 16, Hk, bytes]
    const quire_tensor *key_scale,
        *value_scale;  // the same, last dimension D / quant_group; null: not quantised
    const quire_tensor* cachestarts;
};

// All but the starts.
Status check_cache(const CacheTensors& tensors, const CacheSpec& spec, int64_t B, CacheView* cache);
Status check_cachestarts(const quire_tensor* cachestarts, int64_t B, int64_t page_size, CacheView* cache);
// That a sequence or a page may begin at row `start`.
Status check_block_start(const char* name, int64_t start, const CacheView& cache);
// Every start that positions 0 .. keys - 1 of sequence b use is in the cache.
Status check_positions(const CacheView& cache, int64_t b, int64_t keys);

}  // namespace quire
