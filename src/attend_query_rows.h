// The query rows of decode as the kernels take them (jit/args.h: QkArgs).
#pragma once
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

// Those of a thread for the items of sequences whose keys are cut, made again where an item is of other rows
// than its kv head's last one. Threads share nothing: what another has written is far away, and the items of
// a thread are mostly parts of the same rows.
class KeptQueries {
public:
    // What a kv head of the schedule's sequences needs, in floats.
    static size_t floats_of_head(const AttentionPlan& plan, const Schedule& schedule);

    // For a call; nothing is kept from those before.
    void begin(int kv_heads, size_t floats_of_head);
    bool has(const Item& item) const { return of_[slot(item)] == item.merge; }
    QueryRows get(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item);

private:
    // Of a head: rows from the first on, and what decode takes as the rest.
    static constexpr size_t kSlots = 2;
    static size_t slot(const Item& item) { return kSlots * size_t(item.kv_head) + (item.row_begin > 0); }

    std::vector<int64_t> of_;  // of each slot, Item::merge
    Scratch memory_;
    float* first_ = nullptr;
    size_t stride_ = 0;  // floats of a slot, a multiple of 16
};

}  // namespace quire
