// What is known at the end of a run: the machine, its limits, and a result for every workload.
#pragma once
#include <string>

#include "bench/measure.h"

namespace bench {

struct Result {
    Workload workload;
    std::string target;
    double time_ms, cache_gb_per_s, gflop_per_s, dram_share, peak_share, roofline_share;
};

// The last report of a workload counts: Google Benchmark calls a benchmark several times.
void report(const Result& result);

std::string machine_name();

// Limits with that many threads, over the whole run.
void report_limits(int threads, const Limits& sample);
Limits limits_of(int threads);

// What --json FILE writes: machine, limits, results. False where the file can't be written.
bool write_json(const std::string& path);

}  // namespace bench
