// What is known at the end of a run: the machine, its limits, and a result for every workload.
#pragma once
#include <functional>
#include <string>

#include "bench/measure.h"

namespace bench {

// Called for every measurement; the last one of a workload is what the files have.
void report(const Result& result);
const Result& result_of(const std::string& name);

std::string machine_name();

// Limits with that many threads, over the whole run.
void report_limits(int threads, const Limits& sample);
Limits limits_of(int threads);

// Machine, limits, results; or a line a result. False where the file can't be written. "-": to stdout.
bool write_json(const std::string& path, const std::string& command);
bool write_csv(const std::string& path);

}  // namespace bench
