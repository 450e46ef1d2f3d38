// QUIRE_VERBOSE: lines of CSV about calls and plans (docs/profiling.md has the format).
#pragma once
#include "src/cost.h"
#include "src/ops/operator.h"

namespace quire {

// To be changed with the columns or their meaning.
#define QUIRE_VERBOSE_VERSION "1"

// Level 2: what quire_plan_explain says of it.
void say_plan(const quire_plan& plan);
// All that a prepared call has to do.
Cost cost_of_run(const Run& run);
Status predict_run(const Run& run, const quire_limits* limits, quire_prediction* prediction);
// A prepared call: everything but its time, kept in the run. Before the
// first, a line that names the columns. `begin`: when its checks began.
void describe_call(const quire_plan& plan, int64_t begin, Run* run);
// When all of it has run: the line.
void say_call(Run* run) noexcept;

}  // namespace quire
