// Decode. For each block of kBlock keys: scores of all query rows, softmax with a running maximum, and the
// rescaled sum of values; each cache row is read and converted once for all query rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "src/attend_asks.h"
#include "src/attend_blocks.h"
#include "src/attend_query_rows.h"
#include "src/attend_values.h"

namespace quire {
namespace {

constexpr int kBlock = jit::kBlock;

// What each kv head has of its own.
struct Head {
    Item item;
    QueryRows query;
    float* output;     // [R][V]
    float *max, *sum;  // [R]
};

struct RowsState : BlockState {
    Asks asks;
    int64_t first_query, last_query;  // of the items
    float* bias;                      // [R][kBlock]
    float *tops, *totals;             // [R] as jit::SoftmaxArgs
    jit::RowBounds* bounds;           // [R] keys of a block that a row sees
    RowAddresses* addresses;          // [2]: this block and the next
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
    s.asks.halves = scratch.array<AskedHalves>(1);
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
    const BlockAsks asks(plan, p, s.asks, kernels, block, next, rows);
    asks.before_qk();
    of_rows.qk({head.query.query, head.query.factors, head.query.starts, block.key, s.scales, s.scores,
                padded, asks.of_qk(), s.numbers, stored(block.key_scale, block)});
    asks.before_softmax();
    kernels.softmax({s.scores, s.bias, s.bounds, head.max, head.sum, s.rescale, s.block_factors, s.tops,
                     s.totals, rows, padded, cap_factor(plan.spec)});
    if (p.dropout) drop_rows(p, item, block, kernels.of_block, s);
    make_value_scales(plan, of_rows, block, s);
    asks.before_pv();
    add_values(plan, p, kernels, block, rows, asks.of_pv(), s, head.output);
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
    set_asked_rows(plan, problem, &s.asks);
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
