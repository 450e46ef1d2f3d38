// The work items of one call: a pure function of plan and problem. Neither threads nor the other sequences of
// the batch change how a sequence is cut, so they change no bit of its result.
#pragma once
#include <algorithm>
#include <vector>

#include "src/plan.h"

namespace quire {

// Query rows of one sequence that share a kv head against a range of its keys. Row r is query token
// r / group() and head kv_head * group() + r % group().
struct Item {
    int64_t b;
    int kv_head;
    int64_t row_begin, row_end;
    int64_t key_begin, key_end;  // the begin is a multiple of jit::kKeyPadding
    int64_t part, parts;  // of the key ranges of these rows; one part writes the output, more write states
    int64_t state;        // index of the state of row_begin and this part; rows are `parts` apart
};

class Schedule {
public:
    // Keeps its memory from call to call.
    void build(const AttentionPlan& plan, const AttentionProblem& problem);

    int64_t items() const { return items_; }
    Item item(int64_t index) const;
    // Items in a row that read the same rows of the cache or of queries and outputs, each for another head.
    // Two threads at neighbouring heads would ask for, and take from each other, lines of what the other
    // writes.
    int64_t together() const { return kv_heads_; }

    // Merging: one item a (sequence, kv head) whose keys were cut.
    int64_t merges() const { return merges_; }
    Item merge(int64_t index) const;  // all rows, all parts; `state` is that of row 0, part 0
    // The merging that an item of several parts belongs to, and how many items do.
    int64_t merge_of(const Item& item, int64_t* items) const;
    int64_t states() const { return states_; }

private:
    struct Sequence {
        int64_t first_item, first_merge, first_state;
        int64_t rows, block_rows, blocks;  // query rows, rows a block
        int64_t split, parts;              // keys a part
        // Of a block; where the blocks do not divide the rows the first has less, which is the last to be
        // taken: threads then end at nearly the same time.
        int64_t row_begin(int64_t block) const {
            return std::max<int64_t>(0, rows - (blocks - block) * block_rows);
        }
    };
    const Sequence& find(int64_t Sequence::*first, int64_t index) const;
    int64_t split_into(int64_t b, int64_t parts) const;
    KeyRange block_keys(const Sequence& s, int64_t b, int64_t block) const;
    static int64_t first_part(const Sequence& s, const KeyRange& keys);

    const AttentionProblem* problem_ = nullptr;
    int group_ = 1, kv_heads_ = 1;
    std::vector<Sequence> sequences_;
    int64_t items_ = 0, merges_ = 0, states_ = 0;
};

}  // namespace quire
