#include "src/combine.h"

#include <algorithm>
#include <cmath>

#include "src/half.h"
#include "src/portable.h"

namespace quire {
namespace {

constexpr double kLn2 = 0.693147180559945309;

}  // namespace

float finish_scale(const AttentionProblem& p, const Item& item, int64_t row, float max, float sum) {
    if (!p.sinks && !p.lse.base) return scale_of(sum);  // most often: no division of rows for it
    const int group = p.spec->group(), head = item.kv_head * group + int(row % group);
    float top = max, total = sum, factor = 1;
    if (p.sinks) {
        const float sink = p.sink(head) * jit::kLog2e;
        top = std::max(max, sink);
        factor = top == -INFINITY ? 0 : std::exp2(max - top);
        total = top == -INFINITY ? 0 : sum * factor + std::exp2(sink - top);
    }
    if (p.lse.base)
        store_number(QUIRE_F32, p.lse.at(item.b, p.row_of(item.b, row / group), head), 0,
                     total == 0 ? -INFINITY : float((double(top) + std::log2(double(total))) * kLn2));
    return total == 0 ? 0 : factor / total;
}

char* output_at(const AttentionProblem& p, const Item& item, int64_t row) {
    const int group = p.spec->group();
    return p.output.at(item.b, p.row_of(item.b, row / group), item.kv_head * group + int(row % group));
}

void finish_special(const AttentionProblem& p, const Item& item, int64_t row) {
    const int group = p.spec->group();
    portable::attend_row(p, item.b, row / group, item.kv_head * group + int(row % group));
}

void finish_row(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, int64_t row,
                float max, float sum, const float* output) {
    const float scale = finish_scale(p, item, row, max, sum);
    float poison = 0;
    plan.output_numbers({output, output_at(p, item, row), &poison, scale});
    if (std::isnan(poison)) finish_special(p, item, row);
}

void merge_item(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                const States& states, float* merged) {
    constexpr int64_t kMost = 64;  // states merged by one call of the kernel
    const size_t stride = size_t(plan.value_stride);
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const size_t first = size_t(item.state + row * item.parts), parts = size_t(item.parts);
        const float top = *std::max_element(&states.max[first], &states.max[first] + parts);
        float total = 0;
        const float* sources[kMost + 1];
        float weights[kMost + 1];
        int64_t count = 0;
        for (size_t part = 0; part < parts; ++part) {
            const float weight = top == -INFINITY ? 0 : std::exp2(states.max[first + part] - top);
            total += states.sum[first + part] * weight;
            sources[count] = &states.output[(first + part) * stride];
            weights[count++] = weight;
            if (count < kMost && part + 1 < parts) continue;
            plan.merge({sources, weights, count, merged});
            sources[0] = merged;  // what was merged so far goes on as the first state
            weights[0] = 1;
            count = 1;
        }
        finish_row(plan, problem, item, row, top, total, merged);
    }
}

void merge_rows(quire_type type, int Dv, const void* output_a, float lse_a, const void* output_b, float lse_b,
                void* output, float* lse) {
    const double top = std::max(double(lse_a), double(lse_b));
    const double a = top == -INFINITY ? 0 : std::exp(double(lse_a) - top);
    const double b = top == -INFINITY ? 0 : std::exp(double(lse_b) - top);
    const double total = a + b;
    for (int d = 0; d < Dv; ++d) {
        // A part of weight 0 counts for nothing, whatever it holds.
        const double from_a = a == 0 ? 0 : a * double(load_number(type, output_a, d));
        const double from_b = b == 0 ? 0 : b * double(load_number(type, output_b, d));
        store_number(type, output, d, total == 0 ? 0.f : float((from_a + from_b) / total));
    }
    if (lse) *lse = total == 0 ? -INFINITY : float(top + std::log(total));
}

}  // namespace quire
