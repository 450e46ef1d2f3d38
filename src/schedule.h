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
    // Of the key ranges of these rows, `parts` in all, the first that the item has. One alone writes the
    // output, more write a state each.
    int64_t part, parts;
    int64_t part_keys;  // parts end at the multiples of that, and at key_end
    int64_t state;      // index of the state of row_begin and `part`; rows are `parts` apart
    int64_t merge;      // that of its rows; where there are more parts than one

    int64_t part_end() const { return std::min((key_begin / part_keys + 1) * part_keys, key_end); }
    void next_part() { key_begin = part_end(), ++part, ++state; }
};

// Items that differ in the kv head alone, one head after the other.
struct HeadItems {
    Item first;
    int count;
    int64_t states;  // from one's to the next one's
    Item operator[](int head) const {
        Item item = first;
        item.kv_head += head, item.state += head * states, item.merge += head;
        return item;
    }
};

// How many of them attend_rows takes at most, block by block, where the rows of a token's heads lie side by
// side: memory pages, lines that they share, and what a processor fetches by itself behind a row, are still
// near when the next head comes. 1 where the second-level cache is small.
int heads_together(const AttentionPlan& plan);

class Schedule {
public:
    // Keeps its memory from call to call.
    void build(const AttentionPlan& plan, const AttentionProblem& problem);

    int64_t items() const { return items_; }
    // How many from `begin` on, below `end`, are run together: more than one only where attend_rows takes
    // several heads, or parts of their keys one after the other.
    int64_t together(int64_t begin, int64_t end) const;
    // Those, or none: parts are one item.
    HeadItems items(int64_t begin, int64_t end) const;
    // The end of what one of so many threads takes from `begin` on: neighbours, as long as there is enough
    // for all.
    int64_t take_end(int64_t begin, int threads) const;
    // Where a thread that takes items from `begin` on, and could go on until `end`, is to stop: before parts
    // or heads that it would only have the first of.
    int64_t stop(int64_t begin, int64_t end) const;

    // Merging: one item a (sequence, kv head) whose keys were cut.
    int64_t merges() const { return merges_; }
    Item merge(int64_t index) const;               // all rows, all parts; `state` is that of row 0, part 0
    int64_t merged_items(const Item& item) const;  // how many have its `merge`
    int64_t states() const { return states_; }

private:
    struct Sequence {
        int64_t b, first_item, first_merge, first_state;
        int64_t rows, block_rows, blocks;  // query rows, rows a block
        int64_t split, parts;              // keys a part
        int heads;                         // whose items are run together
        int64_t row;                       // parts of a head that follow each other; the last row has fewer
        int64_t left_in_row(int64_t part) const { return std::min(row - part % row, parts - part); }
        // Of a block; where the blocks do not divide the rows the first has less, which is the last to be
        // taken: threads then end at nearly the same time.
        int64_t row_begin(int64_t block) const {
            return std::max<int64_t>(0, rows - (blocks - block) * block_rows);
        }
    };
    struct Place {
        const Sequence& sequence;
        int64_t head, index;  // index: of its sequence's items of that head
    };
    // The one that has the index, of so many.
    const Sequence& find(int64_t Sequence::*first, int64_t index, int64_t all) const;
    Place place(int64_t index) const;
    Item item(const Place& place) const;
    Sequence cut(const AttentionPlan& plan, int64_t b) const;
    void add(Sequence s);  // behind those that there are
    int64_t split_into(int64_t b, int64_t parts) const;
    KeyRange block_keys(const Sequence& s, int64_t block) const;
    static int64_t first_part(const Sequence& s, const KeyRange& keys);

    const AttentionProblem* problem_ = nullptr;
    int group_ = 1, kv_heads_ = 1;
    // Items in a row for one thread, at most: parts of a head's keys, or what reads the same rows of the
    // cache or of queries and outputs, each for another head. Two threads at neighbouring heads would ask
    // for, and take from each other, lines of what the other writes.
    int64_t neighbours_ = 1;
    std::vector<Sequence> sequences_;  // those of several blocks, then of_one_block_
    std::vector<Sequence> of_one_block_;
    int64_t items_ = 0, merges_ = 0, states_ = 0;
    int64_t by_heads_from_ = 0;  // from this item on all of a head come before the next head
};

}  // namespace quire
