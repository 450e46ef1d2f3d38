// Decode. For each block of kBlock keys: scores of all query rows, softmax with a running maximum, and the
// rescaled sum of values; each cache row is read and converted once for all query rows.
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "src/attend_blocks.h"
#include "src/attend_query_rows.h"
#include "src/attend_values.h"

namespace quire {
namespace {

// The line at `at` is going to be written.
void prefetch_to_write(const void* at) {
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
}

constexpr int kBlock = jit::kBlock;
constexpr int64_t kLine = jit::kLineBytes;
constexpr int64_t kRowsByPage = 2;

// What the kernels of an item ask for, of one side of the cache.
struct AskedRows {
    bool near;            // jit::NextRows
    int64_t bytes;        // of a row, or of a block of tokens
    int64_t lines, step;  // of memory, of tokens, of each
};

// What each kv head has of its own.
struct Head {
    Item item;
    QueryRows query;
    float* output;     // [R][V]
    float *max, *sum;  // [R]
};

struct RowsState : BlockState {
    AskedRows keys, values;
    bool same_rows;
    int64_t first_query, last_query;  // of the items
    float* bias;                      // [R][kBlock]
    float *tops, *totals;             // [R] as jit::SoftmaxArgs
    jit::RowBounds* bounds;           // [R] keys of a block that a row sees
    RowAddresses* addresses;          // [2]: this block and the next
    AskedHalves* halves;
};

RowsState allocate(const AttentionPlan& plan, Scratch& scratch) {
    const size_t R = size_t(plan.decode_rows);
    RowsState s;
    scratch.reset();
    s.weights = scratch.array<int16_t>(R * size_t(jit::weight_row_bytes(2 * plan.weight_stride)) / 2 + 32);
    s.weight_factors = scratch.floats(R * size_t(plan.weight_stride) + 16);
    s.scores = scratch.floats(R * kBlock + 16);
    s.bias = scratch.floats(R * kBlock);
    const int scale_stride = std::max(plan.key_scale_stride, plan.value_scale_stride);
    s.scales = scratch.floats((kBlock + jit::kScalesAhead) * size_t(scale_stride) + 16);
    s.rescale = scratch.floats(R);
    s.block_factors = scratch.floats(R);
    s.tops = scratch.floats(R);
    s.totals = scratch.floats(R);
    s.bounds = scratch.array<jit::RowBounds>(R);
    s.numbers = scratch.floats(jit::kMostNumbers * size_t(plan.target->lanes()));
    s.addresses = scratch.array<RowAddresses>(2);
    s.halves = scratch.array<AskedHalves>(1);
    s.copied_bytes = copied_value_bytes(plan);
    s.copied_values = scratch.array<char>(kBlock * size_t(s.copied_bytes));
    s.value_rows = scratch.array<const char*>(kBlock + jit::kRowsSoon);
    s.stored_blocks = scratch.array<const char*>(kBlock / kBlockTokens);
    return s;
}

void set_bounds(const AttentionPlan& plan, const AttentionProblem& p, const Item& item,
                const RowAddresses& block, const RowsState& s) {
    const int group = plan.spec.group();
    int64_t row = item.row_begin;
    for (int64_t query = s.first_query; query <= s.last_query; ++query) {
        const KeyRange seen = p.visible_in(item.b, query, block.begin, block.count);  // all its heads
        const float distance = plan.spec.alibi ? float(block.begin - p.position(item.b, query)) : 0;
        for (; row < std::min(item.row_end, (query + 1) * group); ++row) {
            jit::RowBounds& bounds = s.bounds[row - item.row_begin];
            bounds.begin = int32_t(seen.begin);
            bounds.end = int32_t(seen.end);
            if (!plan.spec.alibi) continue;
            const int64_t head = item.kv_head * group + row - query * group;
            bounds.slope = plan.slopes[size_t(head)] * jit::kLog2e;
            bounds.distance = distance;
        }
    }
}

// What QK and PV ask for: the rows that are read after the keys of a block, and after its values. A step
// ahead they compete for the cache with half as many as a block ahead. But each kernel can only ask for rows
// like its own: where keys and values differ, for those of the next block.
bool same_rows(const AttentionPlan& plan) {
    return plan.spec.key_format == plan.spec.value_format && plan.spec.D == plan.spec.Dv;
}

// The first-level cache takes the next rows where it is large and they lie side by side, as those of a block
// of tokens do: with others between them they share few of its sets. Not on Intel's cores (jit/prefetch.h).
AskedRows asked_rows(const Target& target, const quire_format& format, int dim, int64_t stride) {
    const bool blocks = token_block_info(format.type) != nullptr;
    const int64_t bytes = blocks ? block_bytes(format, dim) : bytes_of(format.type, dim);
    return {has_large_l1() && !target.of_intel() && (blocks || stride == bytes), bytes,
            (bytes + kLine - 1) / kLine, blocks ? kBlockTokens : 1};
}
void set_asked_rows(const AttentionPlan& plan, const AttentionProblem& p, RowsState* s) {
    const AttentionSpec& spec = plan.spec;
    s->keys = asked_rows(*plan.target, spec.key_format, spec.D, p.cache.key.row_stride);
    s->values = asked_rows(*plan.target, spec.value_format, spec.Dv, p.cache.value.row_stride);
    s->same_rows = same_rows(plan);
}
// Whether kBlock tokens are in blocks that follow each other.
bool together(const AskedRows& asked, const RowAddresses& of, const char* const* blocks) {
    if (asked.step == 1 || of.count != kBlock) return false;
    for (int64_t i = kBlockTokens; i < kBlock; i += kBlockTokens)
        if (blocks[i] != blocks[i - kBlockTokens] + asked.bytes) return false;
    return true;
}
jit::NextRows next_keys(const RowAddresses& of, const RowsState& s) {
    return {of.key, of.key_scale, s.keys.near, together(s.keys, of, of.key)};
}
jit::NextRows next_values(const RowAddresses& of, const RowsState& s) {
    return {of.value, of.value_scale, s.values.near, together(s.values, of, of.value)};
}

// Where values are views of keys, PV would ask again for what QK has asked for. So QK by tiles of AMX, which
// wait for memory most, asks for half of the rows, each of them twice, and PV for the others, or for as much
// of them as values have.
void split_next(const AttentionPlan& plan, const RowAddresses& next, const RowsState& s) {
    for (int64_t i = 0; i < 2 * kBlock; ++i) {
        const int64_t row = i * next.count / (2 * kBlock);
        s.halves->rows[i / kBlock][i % kBlock] = next.key[row];
        if (is_quantised(plan.spec.key_format))
            s.halves->scales[i / kBlock][i % kBlock] = next.key_scale[row];
    }
}

// On Intel's cores rows of a list, of which kernels ask for a few at a time, are asked for at several places
// of it in turns, as others are (jit/prefetch.h): those of small pages, and rows of two lines and more that
// are no further apart than a page of memory.
bool asks_in_turns(const CacheView& cache, const RowAddresses& block, const RowAddresses& next,
                   const RowsState& s) {
    constexpr int64_t kPage = 4096;
    if (block.side_by_side || next.side_by_side || s.keys.step != 1 || s.values.step != 1) return false;
    if (block.count != kBlock || next.count != kBlock) return false;
    return cache.adjacent || (std::max(cache.key.row_stride, cache.value.row_stride) <= kPage &&
                              std::min(s.keys.lines, s.values.lines) > 1);
}
const char* const* spread(const char* const* rows, const char** to) {
    constexpr int kPlaces = 4, kOfPlace = kBlock / kPlaces;
    for (int i = 0; i < kOfPlace; ++i)
        for (int place = 0; place < kPlaces; ++place) to[kPlaces * i + place] = rows[kOfPlace * place + i];
    return to;
}

// QK asks for lines all through, softmax and weights for none: the first of what PV will ask for keep the
// memory busy meanwhile, and are enough for the processor's own prefetches to go on from there.
void prefetch_first(const AskedRows& asked, const jit::NextRows& rows, bool side_by_side) {
    constexpr int kLines = 12;
    for (int64_t i = 0, row = 0, line = 0; i < kLines; ++i) {
        const char* const at = side_by_side ? rows.rows[0] + i * kLine : rows.rows[row] + line * kLine;
        rows.near ? _mm_prefetch(at, _MM_HINT_T0) : _mm_prefetch(at, _MM_HINT_T1);
        if (++line == asked.lines) line = 0, row += asked.step;
    }
}

// A line of each page of rows side by side, a kernel before all their lines are asked for: by then the walk
// for the page's address is done. (A call of what does nothing else is left out by compilers.)
[[gnu::always_inline]] inline void prefetch_pages(const AskedRows& asked, const RowAddresses& of,
                                                  const char* const* rows, jit::Placement placement) {
    constexpr int64_t kPage = 4096;
    if (placement == jit::Placement::runs) {
        uintptr_t last = 0;
        for (int64_t i = 0; i < of.count; i += jit::kKeyPadding) {
            const uintptr_t at = uintptr_t(rows[i]);
            if (last != 0 && at - last < kPage) continue;
            _mm_prefetch(rows[i], _MM_HINT_T1);
            last = at;
        }
        return;
    }
    for (int64_t i = 0; i < of.count / asked.step * asked.bytes; i += kPage)
        _mm_prefetch(rows[0] + i, _MM_HINT_T1);
}

// On AMD's cores that is a gain where little is done with what is read: with up to kRowsByPage query rows,
// and not of blocks of tokens.
bool asks_by_page(const AttentionPlan& plan, const jit::DecodeKernels& kernels, const RowAddresses& of,
                  const jit::NextRows& keys, const jit::NextRows& values, int64_t rows) {
    if (plan.target->of_intel() && keys.together && values.together) return true;
    if (plan.target->of_intel()) return of.side_by_side && kernels.placement != jit::Placement::listed;
    return rows <= kRowsByPage && of.side_by_side && kernels.placement == jit::Placement::adjacent;
}

// Probabilities stay at most 1, as weights of words take them: what the kept ones are multiplied by goes
// where those weights get it from.
void drop_rows(const AttentionProblem& p, const Item& item, const RowAddresses& block, bool of_words,
               const RowsState& s) {
    const float kept = p.dropout.scale();
    for (int64_t r = 0; r < item.row_end - item.row_begin; ++r) {
        float* const probabilities = s.scores + r * kBlock;
        drop(p, item, item.row_begin + r, block.begin, block.count, probabilities, 1);
        if (!of_words) continue;
        for (int64_t i = 0; i < block.count; ++i) probabilities[i] /= kept;
        s.block_factors[r] *= kept;
    }
}

// Heads that share a mask are mostly those of a query: what it adds is loaded once for them.
void load_biases(const AttentionPlan& plan, const AttentionProblem& p, const Item& item,
                 const RowAddresses& block, float* bias) {
    const int group = plan.spec.group();
    const char* before = nullptr;
    for (int64_t row = item.row_begin; row < item.row_end; ++row, bias += kBlock) {
        const int head = item.kv_head * group + int(row % group);
        const char* const numbers =
            p.num_terms == 1 ? numbers_of(p, p.terms[0], item.b, row / group, head, block.begin) : nullptr;
        if (numbers != nullptr && numbers == before) {
            std::copy_n(bias - kBlock, block.padded(), bias);
            continue;
        }
        before = numbers;
        load_bias(p, item, row, block.begin, block.count, bias);
        std::fill(bias + block.count, bias + block.padded(), 0.f);
    }
}

void attend_block(const AttentionPlan& plan, const AttentionProblem& p, const Head& head,
                  const RowAddresses& block, const RowAddresses& next, const RowsState& s) {
    const Item& item = head.item;
    const int64_t rows = item.row_end - item.row_begin;
    const BlockView view = p.look(item.b, s.first_query, s.last_query, block.begin, block.count);
    if (!view.seen) return;
    const jit::DecodeKernels& kernels = view.bias ? plan.decode_bias[rows] : plan.decode[rows];
    const int64_t padded = block.padded();
    set_bounds(plan, p, item, block, s);
    if (view.bias) load_biases(plan, p, item, block, s.bias);
    const jit::BlockKernels& of_rows = kernels_of(kernels, block);
    if (of_rows.key_scales) of_rows.key_scales({block.key_scale, s.scales, padded});
    const jit::NextRows keys = next_keys(next, s), values = next_values(next, s);
    const bool by_page = asks_by_page(plan, kernels, next, keys, values, rows);
    if (by_page) prefetch_pages(s.keys, next, next.key, kernels.placement);
    jit::NextRows first = s.same_rows ? next_values(block, s) : keys, after = s.same_rows ? keys : values;
    if (kernels.tiles.begin && are_views(plan.spec, next) && !next.side_by_side) {
        split_next(plan, next, s);
        first = {s.halves->rows[0], s.halves->scales[0], s.keys.near};
        after = {s.halves->rows[1], s.halves->scales[1], s.keys.near};
    }
    if (plan.target->of_intel() && asks_in_turns(p.cache, block, next, s)) {
        first.rows = spread(first.rows, s.halves->rows[0]);
        after.rows = spread(after.rows, s.halves->rows[1]);
    }
    of_rows.qk({head.query.query, head.query.factors, head.query.starts, block.key, s.scales, s.scores,
                padded, first, s.numbers, stored(block.key_scale, block)});
    prefetch_first(s.same_rows ? s.keys : s.values, after, block.side_by_side);
    kernels.softmax({s.scores, s.bias, s.bounds, head.max, head.sum, s.rescale, s.block_factors, s.tops,
                     s.totals, rows, padded, cap_factor(plan.spec)});
    if (p.dropout) drop_rows(p, item, block, kernels.of_block, s);
    make_value_scales(plan, of_rows, block, s);
    if (by_page) prefetch_pages(s.values, next, next.value, kernels.placement);
    add_values(plan, p, kernels, block, rows, after, s, head.output);
}

// The lines that write_rows fills: a call's states do not stay in the caches.
void prefetch_states(const AttentionPlan& plan, const Item& item, const States& states) {
    constexpr int kFloats = 16;  // of a line
    for (int64_t r = 0; r < item.row_end - item.row_begin; ++r) {
        const float* output =
            states.output.data() + size_t(item.state + r * item.parts) * size_t(plan.value_stride);
        for (int i = 0; i < plan.value_stride; i += kFloats) prefetch_to_write(output + i);
        prefetch_to_write(output + plan.value_stride - 1);
    }
}

// The lines that finish_row fills, most likely soon: they belong to the caller.
void prefetch_outputs(const AttentionPlan& plan, const AttentionProblem& p, const Item& item) {
    const int64_t bytes = bytes_of(plan.spec.type, plan.spec.Dv);
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const char* const at = output_at(p, item, row);
        for (int64_t i = 0; i < bytes; i += kLine) prefetch_to_write(at + i);
    }
}

// The query rows of an item for which they are to be made: they have not been read yet.
void prefetch_queries(const AttentionPlan& plan, const AttentionProblem& p, const Item& item) {
    const int64_t bytes = bytes_of(plan.spec.type, plan.spec.D);
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const char* const at = query_at(p, item, row);
        for (int64_t i = 0; i < bytes; i += kLine) _mm_prefetch(at + i, _MM_HINT_T1);
    }
}

// Of rows that have seen no key.
void clear_state(const AttentionPlan& plan, const Head& head) {
    const int64_t rows = head.item.row_end - head.item.row_begin;
    std::fill_n(head.output, rows * plan.value_stride, 0.f);
    std::fill_n(head.max, rows, -INFINITY);
    std::fill_n(head.sum, rows, 0.f);
}

void write_head(const AttentionPlan& plan, const AttentionProblem& problem, const Head& head,
                States& states) {
    write_rows(plan, problem, head.item, head.max, head.sum, head.output, states);
}

Head begin_head(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                KeptQueries& queries, Scratch& scratch) {
    const int64_t rows = item.row_end - item.row_begin;
    const QueryRows query =
        item.parts > 1 ? queries.get(plan, problem, item)
                       : prepare_query(plan, problem, item, scratch.floats(query_floats(plan, rows)));
    const Head head{item, query, scratch.floats(size_t(rows * plan.value_stride)),
                    scratch.floats(size_t(rows)), scratch.floats(size_t(rows))};
    clear_state(plan, head);
    return head;
}

}  // namespace

size_t head_floats(const AttentionPlan& plan) {
    constexpr size_t kRounding = 16 * 5;  // Scratch::floats
    size_t query = 0;
    for (int rows = plan.spec.group(); rows <= plan.decode_rows; rows += plan.spec.group())
        query = std::max(query, query_floats(plan, rows));
    const size_t own = query + size_t(plan.decode_rows * (plan.value_stride + 2)) + sizeof(Head) / 4;
    return size_t(heads_together(plan)) * (own + kRounding);
}

void attend_rows(const AttentionPlan& plan, const AttentionProblem& problem, const HeadItems& items,
                 const HeadItems& following, KeptQueries& queries, Scratch& scratch, States& states) {
    std::optional<WithoutSubnormals> flush(std::in_place);
    const WithAmxTiles tiles(plan.decode[items.first.row_end - items.first.row_begin].tiles);
    RowsState s = allocate(plan, scratch);
    set_asked_rows(plan, problem, &s);
    const Item& first = items.first;
    s.first_query = first.row_begin / plan.spec.group();
    s.last_query = (first.row_end - 1) / plan.spec.group();
    Head* const heads = scratch.array<Head>(size_t(items.count));
    for (int h = 0; h < items.count; ++h) heads[h] = begin_head(plan, problem, items[h], queries, scratch);

    KeyBlocks blocks(plan, problem.cache, first.row_end - first.row_begin, s.addresses);
    bool more = blocks.begin(first);
    int64_t part_end = first.part_end();
    for (int64_t begin = first.key_begin; more;) {
        const int64_t end = block_end(first, begin);
        const bool last = end >= first.key_end, ends_part = end >= part_end;
        for (int h = 0; h < items.count; ++h) {
            Item& item = heads[h].item;
            if (ends_part && item.parts > 1) prefetch_states(plan, item, states);
            if (last && item.part + 1 == item.parts) prefetch_outputs(plan, problem, item);
            if (last && h < following.count && (following.first.parts == 1 || !queries.has(following[h])))
                prefetch_queries(plan, problem, following[h]);
            const bool ends = h + 1 == items.count;
            more = ends ? blocks.follow(first, end) : blocks.follow(heads[h + 1].item, begin);
            const bool prefetches =
                more || (following.count > 0 && blocks.follow(following.first, following.first.key_begin));
            if (prefetches) blocks.list_before_listed(item);
            attend_block(plan, problem, heads[h], blocks.now(), prefetches ? blocks.next() : blocks.now(), s);
            blocks.move();
            if (last || !ends_part) continue;
            write_head(plan, problem, heads[h], states);
            item.next_part();
            clear_state(plan, heads[h]);
        }
        if (ends_part && !last) part_end = heads[0].item.part_end();
        begin = end;
    }
    flush.reset();
    for (int h = 0; h < items.count; ++h) write_head(plan, problem, heads[h], states);
}

}  // namespace quire
