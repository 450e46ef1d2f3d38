// From states (running maximum m in log2 units, sum l, unnormalised output o) to output and lse; merging of
// states in a fixed order.
#pragma once
#include "src/schedule.h"

namespace quire {

// States of a call, by the index of schedule.
struct States {
    std::vector<float> max, sum, output;  // output: value_stride floats a state
    void resize(int64_t count, int stride) {
        max.resize(size_t(count));
        sum.resize(size_t(count));
        output.resize(size_t(count) * size_t(stride));
    }
};

// Writes output and lse of query row `row` of the item's sequence and kv head. `output`: [Dv]. A
// result with NaN or Inf is computed again by `portable`, which leaves out hidden keys altogether (0 * NaN of
// a hidden value must not reach the row) and in whose double precision sums of finite values do not overflow.
void finish_row(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item, int64_t row,
                float max, float sum, const float* output);

// The same in steps, for output that something else writes: what it is to be multiplied by (writes the lse),
// where it goes, and what a result with NaN or Inf needs.
float finish_scale(const AttentionProblem& problem, const Item& item, int64_t row, float max, float sum);
char* output_at(const AttentionProblem& problem, const Item& item, int64_t row);
void finish_special(const AttentionProblem& problem, const Item& item, int64_t row);
// finish_scale where there are no sinks and no lse.
inline float scale_of(float sum) { return sum == 0 ? 0 : 1 / sum; }

// Merges the parts of all rows of `item` (of Schedule::merge) and writes output and lse. `merged` is scratch,
// value_stride floats.
void merge_item(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                const States& states, float* merged);

// quire_merge_states on checked rows: one row of Dv values.
void merge_rows(quire_type type, int Dv, const void* output_a, float lse_a, const void* output_b, float lse_b,
                void* output, float* lse);

}  // namespace quire
