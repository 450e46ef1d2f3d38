// The query rows of decode as the kernels take them (jit/args.h: QkArgs): made once for all key ranges of a
// sequence and kv head, whoever comes first.
#pragma once
#include <atomic>
#include <vector>

#include "src/attend.h"

namespace quire {

struct QueryRows {
    const void* query;
    const float* factors;
    const int32_t* starts;
};

// Of so many rows.
size_t query_floats(const AttentionPlan& plan, int64_t rows);

// The rows of the item, in `memory` of query_floats.
QueryRows prepare_query(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                        float* memory);

// Of the sequences and kv heads whose keys are cut, by the index of Schedule::merge: rows that decode takes
// from the first on, and those that it takes as the rest.
class SharedQueries {
public:
    void reset(const AttentionPlan& plan, const Schedule& schedule);

    // The item's rows: shared where they are ready or nobody has begun, else made in `own`: no thread waits.
    QueryRows get(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item, float* own);

private:
    enum State : char { kNone, kBegun, kReady };
    std::vector<std::atomic<char>> states_;
    Scratch memory_;
    float* first_ = nullptr;
    size_t stride_ = 0;  // floats, a multiple of 16
};

}  // namespace quire
