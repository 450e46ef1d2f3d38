// Times one workload, alternated with the machine's limits and with workloads that it is compared with.
#pragma once
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "bench/workload.h"

namespace bench {

struct Model;

// Shares are of medians, so that a run that was interrupted does not count. 0: does not apply.
struct Result {
    Workload workload;
    std::string target;
    quire_precision precision;    // that the plan's kernels have
    double time_ms, time_min_ms;  // median and least of all runs
    double spread;                // of the middle half of the runs, as a share of the median
    double cache_gb_per_s, gflop_per_s;
    double dram_share;                   // of a plain read
    double pages_share;                  // of loads alone in the order in which decode reads its cache
    double peak_share;                   // of the precision's peak: float32 FMA, or integer dots
    double roofline_share;               // of what quire_run_predict says could be at best
    double memcpy_share;                 // append: time of a memcpy of the new rows / time
    double cycles;                       // decode: of one core, a (token, kv head)
    double near_cycles;                  // of Turns::near
    quire_prediction predicted;          // with the limits of between the runs
    std::shared_ptr<const Model> model;  // NULL: not asked for
    Limits limits;
    int64_t runs;
    std::vector<Result> beside;  // of workloads that took turns with this one
};

// What is measured in turns: Google Benchmark sees the first alone.
struct Turns {
    Workload workload;
    std::vector<Workload> beside;
    std::unique_ptr<Workload> near;  // near_of(workload), bench/model_counts.h; or NULL
    bool with_model = false;
};

// As Google Benchmark wants; the last measurement of a workload counts, because it is called several times.
void measure(benchmark::State& state, const Turns& turns);

}  // namespace bench
