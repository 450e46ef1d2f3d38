// The command line.
#pragma once
#include <string>
#include <vector>

#include "bench/goals.h"

namespace bench {

struct Options {
    std::vector<Workload> workloads;
    std::vector<GoalRow> goals;  // that are about them
    std::string json, csv;       // files; empty: none
    bool list = false, model = false, once = false;
    bool is_goals = false;            // all goals of an area were asked for
    std::vector<std::string> google;  // --benchmark_*: Google Benchmark's own
    std::string command;
};

// Ends the program where the command line says so (--help) or is wrong: exit code 2, and a message.
Options parse_options(int argc, char** argv);

}  // namespace bench
