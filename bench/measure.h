// Times one workload, alternated with the machine's limits, and turns the times into counters.
#pragma once
#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/cache.h"
#include "bench/limits.h"

namespace bench {

struct Workload {
    std::string name;  // "decode/int8_g8/kv32768/t2"
    const CacheFormat* cache;
    int64_t batch, query_len, kv_len;  // lengths of each sequence
    int threads;

    double cache_bytes() const;  // keys, values and scales of all sequences
    double pairs() const;        // (query, key) pairs that a causal mask leaves
    double flops() const { return 4.0 * H * D * pairs(); }
};

// Runs `run(i)` for i = 0, 1, ... as Google Benchmark wants. bytes and flops are those of one run.
void measure(benchmark::State& state, const Workload& workload, double bytes, double flops,
             const std::function<void(int64_t)>& run);

// 1, 2, and all that the machine has.
const std::vector<int>& thread_counts();

quire_context* context_of(int threads);

// Ends the program with quire's message where a call failed.
void check(quire_status status);

// The cache of a workload; kept until a workload asks for another one.
const PagedCache& cache_of(const Workload& workload, size_t min_bytes);

// Workloads: each adds its benchmarks to Google Benchmark's list.
void register_decode();
void register_prefill();
void register_append();

}  // namespace bench
