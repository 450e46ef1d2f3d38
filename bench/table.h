// The console: a row a workload, and on a terminal what is being measured and how long it may take; in the
// end a row a goal.
#pragma once
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/goals.h"

namespace bench {

class Table : public benchmark::BenchmarkReporter {
public:
    // width: of the longest name. with_model: what models allow stands beside what was measured.
    Table(std::FILE* out, size_t count, size_t width, bool with_model)
        : out_(out), count_(count), width_(int(width)), with_model_(with_model) {}
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>& runs) override;
    // Before a workload is measured.
    void begin(const std::string& name);
    // What a key of each workload takes by its model, kernel by kernel.
    void print_models();
    void print_goals(const std::vector<GoalRow>& goals);

private:
    void print_titles();
    void print_model(const Result& result);
    void print_row(const std::string& name, const Result& result);

    std::FILE* const out_;
    const size_t count_;
    const int width_;
    const bool with_model_;
    bool titled_ = false;
    size_t done_ = 0;
    std::string current_;
    std::vector<const Result*> models_;  // in the order of the rows
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace bench
