// What is known at the end of a run: the machine, its limits, and a result for every workload.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/goals.h"

namespace bench {

// Called for every measurement; the last one of a workload is what the files have.
void report(const Result& result);
// NULL: not measured.
const Result* result_of(const std::string& name);

std::string machine_name();

// Limits with that many threads, over the whole run.
void report_limits(int threads, const Limits& sample);
Limits limits_of(int threads);

// Machine, version, date and command: how every file of results begins.
nlohmann::ordered_json json_head(const std::string& command);

// To a file, or "-": to stdout. False where it can't be written.
bool write_text(const std::string& path, const std::string& text);

// Machine, limits, results, and what goals there were; or a line a result.
bool write_json(const std::string& path, const std::string& command, const std::vector<GoalRow>& goals);
bool write_csv(const std::string& path);

}  // namespace bench
