// Which blocks of keys decode goes through, and where their rows are.
#pragma once
#include <algorithm>
#include <utility>

#include "src/attend.h"

namespace quire {

// Blocks end at fixed positions, as pages do: the first has less where the item begins between them.
inline int64_t block_end(const Item& item, int64_t begin) {
    return std::min((begin / jit::kBlock + 1) * jit::kBlock, item.key_end);
}

inline const jit::BlockKernels& kernels_of(const jit::DecodeKernels& kernels, const RowAddresses& block) {
    return block.side_by_side ? kernels.side_by_side : kernels.listed;
}

// The first scales of adjacent rows, of which some kernels read all.
inline const char* stored(const char* const* scales, const RowAddresses& block) {
    return block.side_by_side && scales ? scales[0] : nullptr;
}

// Where the rows of a block are, and those of the next.
class KeyBlocks {
public:
    KeyBlocks(const AttentionPlan& plan, const CacheView& cache, int64_t rows, RowAddresses* addresses)
        : cache_(cache),
          in_runs_(plan.decode[rows].placement == jit::Placement::runs && cache.adjacent),
          now_(&addresses[0]),
          next_(&addresses[1]) {}

    const RowAddresses& now() const { return *now_; }
    const RowAddresses& next() const { return *next_; }
    bool begin(const Item& item) { return set(now_, item, item.key_begin, false); }
    // The block of `item` from `begin` on follows; false: it has none.
    bool follow(const Item& item, int64_t begin) { return set(next_, item, begin, !now_->side_by_side); }
    // Kernels of adjacent rows ask for such rows alone.
    void list_before_listed(const Item& item) {
        if (!in_runs_ && now_->side_by_side && !next_->side_by_side)
            list(now_, item, now_->begin, now_->count);
    }
    void move() { std::swap(now_, next_); }

private:
    void list(RowAddresses* to, const Item& of, int64_t begin, int64_t keys) const {
        to->set(cache_, of.b, of.kv_head, begin, keys, jit::kBlock + jit::kRowsSoon);
    }
    // listed: the kernels that ask for these rows need a list of adjacent ones, too.
    bool set(RowAddresses* to, const Item& of, int64_t begin, bool listed) const {
        if (begin >= of.key_end) return false;
        const int64_t keys = block_end(of, begin) - begin;
        const bool adjacent = !in_runs_ && to->set_adjacent(cache_, of.b, of.kv_head, begin, keys);
        if (!adjacent || listed) list(to, of, begin, keys);
        to->side_by_side = adjacent || (in_runs_ && keys % jit::kKeyPadding == 0);
        return true;
    }

    const CacheView& cache_;
    const bool in_runs_;
    RowAddresses *now_, *next_;
};

}  // namespace quire
