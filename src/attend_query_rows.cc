#include "src/attend_query_rows.h"

#include <algorithm>

#include "jit/token_qk_bytes.h"

namespace quire {
namespace {

// Of one row, in bytes of a query, numbers of starts and of factors.
struct Sizes {
    size_t query, starts, factors;
};

Sizes four_sizes(const jit::FoursForm& form) {
    const size_t lanes = size_t(form.lanes);
    return {size_t(form.vectors()) * lanes * 4, size_t(form.starts()) * lanes,
            form.digits == 1 ? size_t(form.factors()) * lanes : 1};
}

bool of_token_bytes(const AttentionPlan& plan, jit::Products products) {
    return token_block_info(plan.spec.key_format.type) && products != jit::Products::floats &&
           products != jit::Products::words;
}

jit::TokenBytesForm token_form(const AttentionPlan& plan, jit::Products products) {
    return jit::TokenBytesForm({plan.target, plan.spec.key_format, plan.spec.D, 0, products});
}

Sizes token_sizes(const jit::TokenBytesForm& form) {
    return {size_t(form.bytes()), size_t(form.starts()), size_t(form.factors())};
}

const jit::FoursForm* fours_of(const AttentionPlan& plan, jit::Products products) {
    switch (products) {
        case jit::Products::bytes: return &plan.fours[0];
        case jit::Products::two_bytes: return &plan.fours[1];
        case jit::Products::three_bytes: return &plan.fours[2];
        default: return nullptr;
    }
}

Sizes sizes_of(const AttentionPlan& plan, jit::Products products) {
    if (of_token_bytes(plan, products)) return token_sizes(token_form(plan, products));
    if (const jit::FoursForm* fours = fours_of(plan, products)) return four_sizes(*fours);
    const jit::RowKey keys{plan.target, plan.spec.key_format, plan.spec.D, 0, products};
    if (keys.words()) return {size_t(keys.query_words()) * 2, 0, 1};
    return {size_t(plan.key_stride) * 4, 0, 0};
}

constexpr size_t kRoom = 3;  // behind the factors of words (jit/args.h)
size_t whole_lines(size_t floats) { return (floats + 15) / 16 * 16; }

// Where the arrays of `rows` rows lie, one behind the other, in floats.
struct Layout {
    Layout(const Sizes& of, int64_t rows)
        : sizes(of),
          starts(whole_lines(size_t(rows) * of.query / 4)),
          factors(starts + whole_lines(size_t(rows) * of.starts)),
          floats(factors + whole_lines(size_t(rows) * of.factors + kRoom)) {}
    QueryRows rows(float* memory) const {
        return {memory, memory + factors, reinterpret_cast<int32_t*>(memory + starts)};
    }

    Sizes sizes;
    size_t starts, factors, floats;
};

Layout layout_of(const AttentionPlan& plan, int64_t rows) {
    return {sizes_of(plan, plan.decode[rows].query), rows};
}

void prepare_row(const AttentionPlan& plan, const jit::DecodeKernels& kernels, const float* row, size_t r,
                 const Layout& at, float* memory) {
    char* const query = reinterpret_cast<char*>(memory) + r * at.sizes.query;
    float* const factors = memory + at.factors + r * at.sizes.factors;
    auto* const starts = reinterpret_cast<int32_t*>(memory + at.starts) + r * at.sizes.starts;
    auto* const bytes = reinterpret_cast<int8_t*>(query);
    if (kernels.query_fours)
        kernels.query_fours({row, bytes, starts, factors});
    else if (of_token_bytes(plan, kernels.query))
        query_to_token_bytes(token_form(plan, kernels.query), row, {bytes, starts, factors});
    else if (const jit::FoursForm* fours = fours_of(plan, kernels.query))
        query_to_fours(*fours, row, plan.spec.D, {bytes, starts, factors});
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
    float row[kMostHeadDim + 16] = {};  // padded to whole chunks, and more to be read
    for (int64_t r = 0; r < rows; ++r) {
        load_numbers(plan.spec.type, query_at(p, item, item.row_begin + r), plan.spec.D, row);
        for (int d = 0; d < plan.spec.D; ++d) row[d] *= factor;
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
