// What the project's issues ask of speed, and what a run says of it.
#pragma once
#include <string>
#include <vector>

#include "bench/ratios.h"
#include "bench/settings.h"

namespace bench {

struct Goal {
    int issue;
    const char* words;  // the issue's
    const Ratio* ratio;
    double wanted, wanted_avx2;  // avx2: of a target with vectors of 256 bits; 0: the same
    const char* settings;        // over the usual workload with 2 threads: lists make several rows
    const char* beside;          // over the row's: the workloads that it is compared with; NULL: none
};
const std::vector<Goal>& goals();

struct GoalRow {
    const Goal* goal;
    Workload workload;
    std::vector<Workload> beside;
    std::string why_not;  // it is not run; empty: it is
};

// area: how names of workloads begin: decode, prefill, append; all. `changes`, of one value each, are made to
// every workload and to those beside it.
std::vector<GoalRow> goal_rows(const std::string& area, const std::vector<Sweep>& changes);

// Those that `rows` compare this one with.
std::vector<Workload> beside_of(const std::vector<GoalRow>& rows, const Workload& workload);

// A ratio counts as it is printed: shares in whole percent, all else with two decimals.
struct Judgement {
    std::string wanted, reached,
        verdict;  // ">= 82 %", "57 %", "missed by 25 points"; "-" where there is none
    double wanted_ratio = 0, reached_ratio = 0;
    const char* ratio = "";  // Ratio::words
};
// result NULL: it was not run.
Judgement judge(const GoalRow& row, const Result* result);
// What its ratio would be as its model says ("74 %"); "-" where there is no model.
std::string allowed(const GoalRow& row, const Result& result);

}  // namespace bench
