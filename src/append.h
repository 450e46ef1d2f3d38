// Stores new tokens: rotates, quantises, and writes their rows of keys and values.
#pragma once
#include "src/attend.h"

namespace quire {

// Work items: a few tokens each, so that a kernel has rows enough to overlap one with the next.
int64_t append_items(const AppendPlan& plan, const AppendProblem& problem);
// Enough for any item of the plan.
size_t scratch_floats(const AppendPlan& plan);
void append_item(const AppendPlan& plan, const AppendProblem& problem, int64_t item, Scratch& scratch);

}  // namespace quire
