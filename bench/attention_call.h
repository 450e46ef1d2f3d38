// One quire_attention over the layers of a paged cache: random queries, a causal mask, float32 in and out.
#pragma once
#include <vector>

#include "bench/measure.h"

namespace bench {

class AttentionCall {
public:
    AttentionCall(const Workload& workload, const PagedCache& cache);
    AttentionCall(const AttentionCall&) = delete;
    ~AttentionCall() { quire_plan_destroy(plan_); }

    // Run i takes layer i: where a model's layers follow each other, no cache holds the next one.
    void run(int64_t i);

private:
    const PagedCache& cache_;
    quire_plan* plan_ = nullptr;
    std::vector<float> query_, output_;
    std::vector<int64_t> seqstarts_, kvstarts_;
};

// Registers a benchmark that times an AttentionCall; the layers of its cache exceed min_cache_bytes.
void register_attention(const Workload& workload, size_t min_cache_bytes);

}  // namespace bench
