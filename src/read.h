// Reads a cache back: the rows of all positions, dequantised, each head given spec.repeat times.
#pragma once
#include <vector>

#include "src/attend.h"

namespace quire {

// The work items of one call: a kv head and a block of positions of one sequence.
class Reader {
public:
    // Keeps its memory from call to call.
    void build(const ReadPlan& plan, const ReadProblem& problem);
    int64_t items() const { return items_; }
    void run_item(int64_t index, Scratch& scratch) const;

private:
    const ReadPlan* plan_ = nullptr;
    const ReadProblem* problem_ = nullptr;
    std::vector<int64_t> first_items_;  // [B]
    int64_t items_ = 0;
};

// Enough for any item of the plan.
size_t scratch_floats(const ReadPlan& plan);

}  // namespace quire
