#include "src/schedule.h"

#include <algorithm>
#include <limits>

namespace quire {
namespace {

// Query tokens up to which keys are cut even where a sequence has several blocks of rows (many heads a kv
// head): its row blocks alone would not keep many threads busy.
constexpr int64_t kFewQueries = 16;
// Parts of a long sequence: of decode over all kv heads, two for each of 64 threads; where
// AttentionPlan::takes_few, of each kv head.
constexpr int64_t kItems = 128, kFewParts = 8;
// Of one vector of query rows as tiles, over all kv heads: with eight of them and 4096 keys one thread loses
// 4 %.
constexpr int64_t kVectorItems = 32;
// Heads that are run together, and what all of them may have of their own with the most query rows, in bytes.
constexpr int kMostHeads = 32;
constexpr int64_t kHeadBytes = 512 << 10;
// Keys of the parts of a head that follow each other where a page holds all heads.
constexpr int64_t kRowKeys = 2048;
// Parts that a thread takes in a row at most, of one head and of all heads together.
constexpr int64_t kMostInARow = 8, kMostOfHeads = 4;
constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

int heads_together(const AttentionPlan& plan) {
    if (!has_large_l2()) return 1;
    const int64_t own = plan.decode_rows * (plan.spec.D + plan.spec.Dv) * int64_t(sizeof(float));
    return int(
        std::clamp<int64_t>(kHeadBytes / std::max<int64_t>(own, 1), 1, std::min(plan.spec.Hk, kMostHeads)));
}

// Keys that some row of the block sees; the begin is moved down to where kernels can begin.
KeyRange Schedule::block_keys(const Sequence& s, int64_t block) const {
    KeyRange keys, all;
    problem_->visible(s.b, s.row_begin(block) / group_, (s.row_begin(block + 1) - 1) / group_, &keys, &all);
    keys.begin = std::min(keys.begin, keys.end) / jit::kKeyPadding * jit::kKeyPadding;
    return keys;
}

// Where the first part of those keys would begin, if all were seen.
int64_t Schedule::first_part(const Sequence& s, const KeyRange& keys) {
    return keys.begin / s.split * s.split;
}

// Keys of a part, where a sequence of many is to have no fewer: a state, its merging and what begins a part
// take 3 to 9 % of one of kDecodeSplit keys, and long sequences keep many threads busy with longer ones.
int64_t Schedule::split_into(int64_t b, int64_t parts) const {
    if (problem_->queries(b) == 0) return kDecodeSplit;  // nothing is cut, and nobody sees a key
    KeyRange keys, all;
    problem_->visible(b, 0, problem_->queries(b) - 1, &keys, &all);
    const int64_t wanted =
        std::max<int64_t>(keys.end - keys.begin, 0) / (parts * kDecodeSplit) * kDecodeSplit;
    return std::clamp(wanted, kDecodeSplit, kTileSplit);
}

Schedule::Sequence Schedule::cut(const AttentionPlan& plan, int64_t b) const {
    const AttentionProblem& problem = *problem_;
    Sequence s{b, 0, 0, 0, problem.queries(b) * group_, 0, 0, kWhole, 1, 1, 1};
    if (!plan.target->jit()) {
        s.block_rows = group_;
    } else if (plan.first_rows(s.rows) <= plan.decode_rows) {
        s.block_rows = std::max<int64_t>(s.rows, 1);
        s.split = split_into(b, divide_up(kItems, kv_heads_));
        if (kv_heads_ > 1 && problem.cache.heads_interleave())
            s.heads = heads_together(plan);
        else
            s.row = problem.cache.heads_apart() || kv_heads_ == 1 ? kWhole
                                                                  : std::max<int64_t>(kRowKeys / s.split, 1);
    } else if (plan.takes_few(plan.first_rows(s.rows))) {
        s.block_rows = s.rows;
        s.split = split_into(b, kFewParts);
    } else {
        s.block_rows = plan.tile_rows;
        if (s.rows <= plan.target->lanes())
            s.split = split_into(b, divide_up(kVectorItems, kv_heads_));
        else if (problem.queries(b) <= kFewQueries || s.rows <= s.block_rows)
            s.split = kTileSplit;
    }
    s.blocks = divide_up(s.rows, s.block_rows);
    for (int64_t block = 0; s.split != kWhole && block < s.blocks; ++block) {
        const KeyRange keys = block_keys(s, block);
        s.parts = std::max(s.parts, divide_up(keys.end - first_part(s, keys), s.split));
    }
    s.row = std::min(s.row, s.parts);
    return s;
}

void Schedule::add(Sequence s) {
    s.first_item = items_, s.first_merge = merges_, s.first_state = states_;
    items_ += s.blocks * kv_heads_ * s.parts;
    if (s.parts > 1) {
        merges_ += kv_heads_;
        states_ += kv_heads_ * s.rows * s.parts;
        neighbours_ = std::max({neighbours_, std::min(s.row, kMostInARow),
                                s.heads > 1 ? kv_heads_ * std::min(s.parts, kMostOfHeads) : 1});
    }
    sequences_.push_back(s);
}

void Schedule::build(const AttentionPlan& plan, const AttentionProblem& problem) {
    problem_ = &problem;
    group_ = plan.spec.group();
    neighbours_ = kv_heads_ = plan.spec.Hk;
    by_heads_from_ = items_ = merges_ = states_ = 0;
    sequences_.clear();
    of_one_block_.clear();
    if (problem.n == 0) return;
    // Long items first, so that threads end at nearly the same time.
    for (int64_t b = 0; b < problem.B; ++b) {
        const Sequence s = cut(plan, b);
        s.blocks > 1 ? add(s) : of_one_block_.push_back(s);
    }
    by_heads_from_ = items_;
    for (const Sequence& s : of_one_block_) add(s);
    if (!problem.cache.heads_apart()) by_heads_from_ = items_;
}

// Often all have as many, and no search is needed.
const Schedule::Sequence& Schedule::find(int64_t Sequence::*first, int64_t index, int64_t all) const {
    const size_t guess = size_t(index) * sequences_.size() / size_t(all);
    const bool ends = guess + 1 == sequences_.size() || index < sequences_[guess + 1].*first;
    if (ends && sequences_[guess].*first <= index) return sequences_[guess];
    const auto after = std::upper_bound(sequences_.begin(), sequences_.end(), index,
                                        [&](int64_t i, const Sequence& s) { return i < s.*first; });
    return *(after - 1);
}

// What all sequences have of one head comes before the next head where heads lie apart: two pieces of its
// memory share a line of what translates their addresses. Where a page holds all heads, its heads come soon
// after each other, for the same lines' sake: head by head, each with a row of parts. Where a row of the
// cache holds them, part by part.
Schedule::Place Schedule::place(int64_t index) const {
    if (index < by_heads_from_) {
        const Sequence& s = find(&Sequence::first_item, index, items_);
        const int64_t of_rows = kv_heads_ * s.row, local = index - s.first_item, in_row = local % of_rows;
        const int64_t first = local / of_rows * s.row;
        const int64_t parts = std::min(s.row, s.blocks * s.parts - first);
        return {s, in_row / parts, first + in_row % parts};
    }
    const int64_t of_a_head = (items_ - by_heads_from_) / kv_heads_, local = index - by_heads_from_;
    const Sequence& s = find(&Sequence::first_item, by_heads_from_ + local % of_a_head * kv_heads_, items_);
    return {s, local / of_a_head, local % of_a_head - (s.first_item - by_heads_from_) / kv_heads_};
}

int64_t Schedule::take_end(int64_t begin, int threads) const {
    const int64_t count = std::clamp<int64_t>((items_ - begin) / (2 * threads), 1, neighbours_);
    return stop(begin, begin + count);
}

int64_t Schedule::stop(int64_t begin, int64_t end) const {
    if (end >= items_) return end;
    const Place next = place(end);
    const Sequence& s = next.sequence;
    const int64_t before = end - (s.row > 1 ? next.index % s.row : next.head % s.heads);
    return before > begin ? before : end;
}

int64_t Schedule::together(int64_t begin, int64_t end) const {
    const Place first = place(begin);
    const Sequence& s = first.sequence;
    if (s.row > 1) return std::min(end - begin, s.left_in_row(first.index));
    if (s.heads > 1 && s.heads == kv_heads_ && first.head == 0 && end - begin >= kv_heads_)
        return std::min((end - begin) / kv_heads_, s.parts - first.index) * kv_heads_;
    return std::min({end - begin, kv_heads_ - first.head, int64_t(s.heads)});
}

HeadItems Schedule::items(int64_t begin, int64_t end) const {
    HeadItems items;
    items.count = 0;
    if (begin == end) return items;
    const Place first = place(begin), last = place(end - 1);
    items.count = int(last.head - first.head) + 1;
    items.first = item(first);
    if (last.index > first.index) items.first.key_end = item(last).key_end;
    items.states = first.sequence.rows * first.sequence.parts;
    return items;
}

Item Schedule::item(const Place& place) const {
    const Sequence& s = place.sequence;
    const int64_t part = place.index % s.parts;
    // Later rows see more keys under a causal mask: longest first.
    const int64_t block = s.blocks - 1 - place.index / s.parts;
    const int64_t row_begin = s.row_begin(block), row_end = s.row_begin(block + 1);
    const int64_t state = s.first_state + (place.head * s.rows + row_begin) * s.parts + part;
    Item item{s.b,   int(place.head),           row_begin, row_end, 0, 0, part, s.parts, s.split,
              state, s.first_merge + place.head};
    const KeyRange keys = block_keys(s, block);
    if (s.parts == 1) {
        item.key_begin = keys.begin;
        item.key_end = keys.end;
    } else {  // a block that sees fewer keys than another leaves its last parts empty
        const int64_t begin = first_part(s, keys) + part * s.split;
        item.key_begin = std::clamp(begin, keys.begin, keys.end);
        item.key_end = std::min(begin + s.split, keys.end);
    }
    return item;
}

int64_t Schedule::merged_items(const Item& item) const {
    const Sequence& s = find(&Sequence::first_merge, item.merge, merges_);
    return s.blocks * s.parts;
}

Item Schedule::merge(int64_t index) const {
    const Sequence& s = find(&Sequence::first_merge, index, merges_);
    const int64_t head = index - s.first_merge;
    return {s.b,  int(head), 0, s.rows, 0, 0, 0, s.parts, s.split, s.first_state + head * s.rows * s.parts,
            index};
}

}  // namespace quire
