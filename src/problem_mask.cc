#include "src/problem_mask.h"

#include <algorithm>
#include <cstring>

#include "src/problem.h"

namespace quire {
namespace {

constexpr int64_t kKeys = MaskMap::kKeys;

// A map needs one term for all heads, whose columns follow each other.
bool has_map(const AttentionProblem& p) {
    if (p.num_terms != 1) return false;
    const ScoreTerm& term = p.terms[0];
    if (term.kind != ScoreTerm::add && term.kind != ScoreTerm::hide_where_zero) return false;
    return term.head_stride == 0 && term.column_stride == type_bits(term.type) / 8;
}

// Elements by their bits: what adds nothing, and what hides.
template <typename T>
struct Number {
    T hides;
    bool is_hidden(T x) const { return x == hides; }
    bool is_plain(T x) const { return T(x << 1) == 0; }  // 0 and -0
    T not_hidden(T x) const { return T(x ^ hides); }
    T not_plain(T x) const { return T(x << 1); }
};
struct Flag {  // one byte; false hides
    bool is_hidden(uint8_t x) const { return x == 0; }
    bool is_plain(uint8_t x) const { return x != 0; }
    uint8_t not_hidden(uint8_t x) const { return x; }
    uint8_t not_plain(uint8_t x) const { return x == 0; }
};

struct Run {  // visible keys of a block, from the first to the last
    int64_t begin, end;
    bool plain;
};

// A caller's mask may lie at any address.
template <typename T>
T load(const char* mask, int64_t j) {
    T x;
    std::memcpy(&x, mask + j * int64_t(sizeof x), sizeof x);
    return x;
}

// The loop over all elements has no branch, so that compilers make vectors of it.
template <typename T, typename Meaning>
Run scan_block(const char* mask, int64_t begin, int64_t count, const Meaning& is) {
    const auto is_mixed = [&](int64_t j) {  // by itself, as all of a bias are
        const T x = load<T>(mask, j);
        return !is.is_hidden(x) && !is.is_plain(x);
    };
    if (is_mixed(0) && is_mixed(count - 1)) return {begin, begin + count, false};
    T not_hidden = 0, not_plain = 0;
    for (int64_t j = 0; j < count; ++j) {
        not_hidden |= is.not_hidden(load<T>(mask, j));
        not_plain |= is.not_plain(load<T>(mask, j));
    }
    if (not_plain == 0) return {begin, begin + count, true};
    if (not_hidden == 0) return {begin, begin, true};
    int64_t first = 0, last = count;
    while (is.is_hidden(load<T>(mask, first))) ++first;
    while (is.is_hidden(load<T>(mask, last - 1))) --last;
    bool plain = true;
    for (int64_t j = first; plain && j < last; ++j) plain = is.is_plain(load<T>(mask, j));
    return {begin + first, begin + last, plain};
}

// A block is plain where its visible keys are all those of the row's range: no gap before, in or after them.
template <typename T, typename Meaning>
KeyRange scan_row(const char* mask, int64_t keys, const Meaning& is, MaskMap::Block* blocks) {
    KeyRange range{keys, 0};
    int64_t last = -1;   // the last block with a visible key
    bool to_end = true;  // whose keys are visible up to its end
    for (int64_t begin = 0, i = 0; begin < keys; begin += kKeys, ++i) {
        const int64_t count = std::min(kKeys, keys - begin);
        const Run run = scan_block<T>(mask + begin * int64_t(sizeof(T)), begin, count, is);
        blocks[i] = run.begin == run.end ? MaskMap::hidden : run.plain ? MaskMap::plain : MaskMap::mixed;
        if (run.begin == run.end) continue;
        if (last >= 0 && !to_end) blocks[last] = MaskMap::mixed;
        if (last >= 0 && run.begin != begin) blocks[i] = MaskMap::mixed;
        if (last < 0) range.begin = run.begin;
        range.end = run.end;
        last = i;
        to_end = run.end == begin + count;
    }
    if (last < 0) range = {0, 0};
    return range;
}

}  // namespace

void MaskMap::build(const AttentionProblem& p) {
    clear();
    if (!has_map(p)) return;
    const ScoreTerm& term = p.terms[0];
    problem_ = &p;
    packed_ = term.packed;
    int64_t queries = 0;
    columns_ = 0;
    for (int64_t b = 0; b < p.B; ++b) {
        queries = std::max(queries, p.queries(b));
        columns_ = std::max(columns_, p.keys(b));
    }
    query_rows_ = term.row_stride == 0 ? 0 : 1;
    const int64_t per_sequence = query_rows_ == 0 ? 1 : queries;
    batch_rows_ = term.batch_stride == 0 ? 0 : per_sequence;
    if (columns_ == 0) return;
    rows_ = packed_ ? p.n : batch_rows_ == 0 ? per_sequence : p.B * per_sequence;
    blocks_per_row_ = (columns_ + kKeys - 1) / kKeys;
    ranges_.assign(size_t(rows_), KeyRange{0, columns_});
    blocks_.assign(size_t(rows_ * blocks_per_row_), mixed);
}

MaskMap::Source MaskMap::source(int64_t row) const {
    const ScoreTerm& term = problem_->terms[0];
    if (!packed_) {
        const int64_t b = batch_rows_ == 0 ? 0 : row / batch_rows_,
                      i = batch_rows_ == 0 ? row : row % batch_rows_;
        return {term.base + b * term.batch_stride + i * term.row_stride, columns_};
    }
    int64_t low = 0, high = problem_->B;  // the sequence: begin(b) <= row < begin(b + 1)
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (problem_->queries_at.begin(middle) <= row ? low : high) = middle;
    }
    return {term.base + row * term.row_stride + problem_->keys_at.begin(low) * term.column_stride,
            problem_->keys(low)};
}

void MaskMap::run_item(int64_t item) {
    const ScoreTerm& term = problem_->terms[0];
    for (int64_t row = item * kItemRows; row < std::min((item + 1) * kItemRows, rows_); ++row) {
        const Source from = source(row);
        KeyRange& range = ranges_[size_t(row)];
        Block* blocks = &blocks_[size_t(row * blocks_per_row_)];
        switch (term.type) {
            case QUIRE_BOOL: range = scan_row<uint8_t>(from.base, from.keys, Flag(), blocks); break;
            case QUIRE_F16:
                range = scan_row<UnalignedHalf>(from.base, from.keys, Number<uint16_t>{0xfc00}, blocks);
                break;
            case QUIRE_BF16:
                range = scan_row<UnalignedHalf>(from.base, from.keys, Number<uint16_t>{0xff80}, blocks);
                break;
            case QUIRE_F32:
                range = scan_row<UnalignedUint32>(from.base, from.keys, Number<uint32_t>{0xff800000}, blocks);
                break;
            default: break;
        }
    }
}

// ---- what a query sees ----

KeyRange AttentionProblem::visible(int64_t b, int64_t i) const {
    const int64_t at = position(b, i);
    KeyRange range{key_begin ? key_begin(b) : 0, key_end ? key_end(b) : keys(b)};
    if (spec->alibi || (spec->causal && b >= decoding_batches)) range.end = std::min(range.end, at + 1);
    if (spec->window_right >= 0) range.end = std::min(range.end, at + spec->window_right + 1);
    if (spec->window_left >= 0) range.begin = std::max(range.begin, at - spec->window_left);
    if (mask_map) {
        const KeyRange mask = mask_map->range(map_row(b, i));
        range = {std::max(range.begin, mask.begin), std::min(range.end, mask.end)};
    }
    range.end = std::max<int64_t>(range.end, 0);
    range.begin = std::min(range.begin, range.end);
    return range;
}

void AttentionProblem::visible(int64_t b, int64_t first, int64_t last, KeyRange* any, KeyRange* all) const {
    const KeyRange front = visible(b, first);
    if (!mask_map) {  // both ends rise from query to query
        const KeyRange back = visible(b, last);
        *any = {front.begin, back.end};
        *all = {back.begin, front.end};
        return;
    }
    *any = *all = front;
    for (int64_t i = first + 1; i <= last; ++i) {
        const KeyRange range = visible(b, i);
        *all = {std::max(all->begin, range.begin), std::min(all->end, range.end)};
        if (range.begin == range.end) continue;
        if (any->begin == any->end) *any = range;
        *any = {std::min(any->begin, range.begin), std::max(any->end, range.end)};
    }
}

KeyRange AttentionProblem::visible_in(int64_t b, int64_t i, int64_t begin, int64_t count) const {
    const KeyRange range = visible(b, i);
    KeyRange in{std::clamp<int64_t>(range.begin - begin, 0, count),
                std::clamp<int64_t>(range.end - begin, 0, count)};
    if (!mask_map || in.begin == in.end) return in;
    const int64_t row = map_row(b, i);
    for (int64_t at = begin + in.begin; at < begin + in.end; at = (at / MaskMap::kKeys + 1) * MaskMap::kKeys)
        if (mask_map->block(row, at / MaskMap::kKeys) != MaskMap::hidden) return in;
    return {0, 0};
}

bool AttentionProblem::is_seen(int64_t b, int64_t first, int64_t last, int64_t begin, int64_t count) const {
    bool seen = mask_map == nullptr;
    for (int64_t i = last; !seen && i >= first; --i) {
        const KeyRange in = visible_in(b, i, begin, count);
        seen = in.begin < in.end;
    }
    return seen;
}

BlockView AttentionProblem::look(int64_t b, int64_t first, int64_t last, int64_t begin, int64_t count) const {
    if (!mask_map) return {true, num_terms > 0, false};
    BlockView view{false, false, false};
    for (int64_t i = first; i <= last; ++i) {
        const KeyRange in = visible_in(b, i, begin, count);
        view.ragged = view.ragged || in.begin > 0 || in.end < count;
        if (in.begin == in.end) continue;
        view.seen = true;
        const int64_t row = map_row(b, i);
        for (int64_t at = begin + in.begin; at < begin + in.end;
             at = (at / MaskMap::kKeys + 1) * MaskMap::kKeys)
            view.bias = view.bias || mask_map->block(row, at / MaskMap::kKeys) != MaskMap::plain;
    }
    return view;
}

}  // namespace quire
