#include "src/attend_query_rows.h"

#include <algorithm>

namespace quire {
namespace {

constexpr int kBehind = 144;  // elements that are 0: the rest of a chunk of 128, and what is read behind it
constexpr size_t kRoom = 3;   // behind the factors of words (jit/args.h)
size_t whole_lines(size_t floats) { return (floats + 15) / 16 * 16; }

// Where the arrays of `rows` rows lie, one behind the other, in floats.
struct Layout {
    Layout(const jit::QuerySizes& of, int64_t rows)
        : sizes(of),
          starts(whole_lines(size_t(rows) * of.query / 4)),
          factors(starts + whole_lines(size_t(rows) * of.starts)),
          floats(factors + whole_lines(size_t(rows) * of.factors + kRoom)) {}
    QueryRows rows(float* memory) const {
        return {memory, memory + factors, reinterpret_cast<int32_t*>(memory + starts)};
    }

    jit::QuerySizes sizes;
    size_t starts, factors, floats;
};

Layout layout_of(const AttentionPlan& plan, int64_t rows) { return {plan.decode[rows].query_sizes, rows}; }

void prepare_row(const AttentionPlan& plan, const jit::DecodeKernels& kernels, const float* row, size_t r,
                 const Layout& at, float* memory) {
    char* const query = reinterpret_cast<char*>(memory) + r * at.sizes.step;
    float* const factors = memory + at.factors + r * at.sizes.factors;
    auto* const starts = reinterpret_cast<int32_t*>(memory + at.starts) + r * at.sizes.starts;
    auto* const bytes = reinterpret_cast<int8_t*>(query);
    if (kernels.query_row)
        kernels.query_row({row, bytes, starts, factors});
    else if (const int digits = jit::query_bytes_of(kernels.query))
        query_to_fours(plan.fours[digits - 1], row, plan.spec.D, {bytes, starts, factors});
    else if (kernels.query == jit::Products::words)
        *factors =
            query_to_words(kernels.query_order, plan.key_stride, row, reinterpret_cast<int16_t*>(query));
    else
        std::transform(row, row + plan.key_stride, reinterpret_cast<float*>(query),
                       [&](float number) { return number * kernels.query_unit; });
}

}  // namespace

size_t query_floats(const AttentionPlan& plan, int64_t rows) { return layout_of(plan, rows).floats; }

QueryRows prepare_query(const AttentionPlan& plan, const AttentionProblem& p, const Item& item,
                        float* memory) {
    const int64_t rows = item.row_end - item.row_begin;
    const Layout layout = layout_of(plan, rows);
    const float factor = query_factor(plan.spec);
    float poison;  // seen again in what rows are rounded by
    alignas(64) float row[kMostHeadDim + kBehind];
    std::fill_n(row + plan.spec.D, kBehind, 0.f);
    for (int64_t r = 0; r < rows; ++r) {
        plan.query_numbers({query_at(p, item, item.row_begin + r), row, &poison, factor});
        prepare_row(plan, plan.decode[rows], row, size_t(r), layout, memory);
    }
    return layout.rows(memory);
}

size_t KeptQueries::floats_of_head(const AttentionPlan& plan, const Schedule& schedule) {
    size_t most = 0;
    const auto room_for = [&](int64_t rows) {
        if (rows > 0 && rows <= plan.decode_rows) most = std::max(most, query_floats(plan, rows));
    };
    const int64_t merges = plan.target->jit() ? schedule.merges() : 0;
    for (int64_t i = 0; i < merges; i += plan.spec.Hk) {  // those of a sequence have the same rows
        const int64_t rows = schedule.merge(i).row_end, first = plan.first_rows(rows);
        room_for(first);
        room_for(rows - first);
    }
    return kSlots * most;
}

void KeptQueries::begin(int kv_heads, size_t floats_of_head) {
    stride_ = floats_of_head / kSlots;
    of_.assign(kSlots * size_t(kv_heads), -1);  // `has` is asked of items that decode does not take, too
    if (stride_ == 0) return;
    memory_.reserve(size_t(kv_heads) * floats_of_head);
    memory_.reset();
    first_ = memory_.floats(size_t(kv_heads) * floats_of_head);
}

QueryRows KeptQueries::get(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item) {
    float* const memory = first_ + slot(item) * stride_;
    if (has(item)) return layout_of(plan, item.row_end - item.row_begin).rows(memory);
    of_[slot(item)] = item.merge;
    return prepare_query(plan, problem, item, memory);
}

}  // namespace quire
