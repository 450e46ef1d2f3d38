#include "bench/table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "bench/report.h"

namespace bench {
namespace {

// From so many workloads on, rows say which one of how many they are.
constexpr size_t kLong = 10;

// Before the name of a workload that is only compared with.
constexpr char kBeside[] = "  beside ";

std::string percent(double share) {
    char text[16] = "-";
    if (share > 0) std::snprintf(text, sizeof text, "%.0f %%", share * 100);
    return text;
}

std::string fixed(const char* format, double value) {
    char text[32] = "-";
    if (value > 0) std::snprintf(text, sizeof text, format, value);
    return text;
}

const char* bound_name(quire_bound bound) {
    switch (bound) {
        case QUIRE_BOUND_MEMORY: return "memory";
        case QUIRE_BOUND_COMPUTE: return "compute";
        default: return "-";
    }
}

}  // namespace

void Table::print_titles() {
    titled_ = true;
    std::fprintf(out_, "%-*s %10s %7s %7s %8s %6s %6s %6s %7s %7s", width_, "workload", "ms", "spread",
                 "GB/s", "GFLOP/s", "DRAM", "peak", "bound", "memcpy", "cycles");
    if (with_model_) std::fprintf(out_, " %12s %8s", "predicted ms", "bound by");
    std::fprintf(out_, "\n");
}

void Table::begin(const std::string& name) {
    if (name == current_) return;  // Google Benchmark begins a workload several times
    current_ = name;
    if (!isatty(STDERR_FILENO)) return;
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    std::string left;
    if (done_ > 0)
        left = ", about " + fixed("%.0f", passed / double(done_) * double(count_ - done_)) + " s left";
    std::fprintf(stderr, "\r\033[K[%zu/%zu] %s%s", done_ + 1, count_, name.c_str(), left.c_str());
}

void Table::print_row(const std::string& name, const Result& r) {
    std::fprintf(
        out_, "%-*s %10s %7s %7s %8s %6s %6s %6s %7s %7s", width_, name.c_str(),
        fixed("%.4g", r.time_ms).c_str(), percent(r.spread).c_str(), fixed("%.2f", r.cache_gb_per_s).c_str(),
        fixed("%.1f", r.gflop_per_s).c_str(), percent(r.dram_share).c_str(), percent(r.peak_share).c_str(),
        percent(r.roofline_share).c_str(), percent(r.memcpy_share).c_str(), fixed("%.1f", r.cycles).c_str());
    if (with_model_)
        std::fprintf(out_, " %12s %8s", fixed("%.4g", r.predicted.seconds * 1e3).c_str(),
                     bound_name(r.predicted.bound));
}

void Table::ReportRuns(const std::vector<Run>& runs) {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
    if (!titled_) print_titles();
    ++done_;
    const Result& r = *result_of(current_);
    std::string name = current_;
    if (runs.size() > 1) name += " (last of " + std::to_string(runs.size()) + ")";
    print_row(name, r);
    if (count_ >= kLong) std::fprintf(out_, "  [%zu/%zu]", done_, count_);
    std::fprintf(out_, "\n");
    for (const Result& beside : r.beside) {
        print_row(kBeside + beside.workload.name(), beside);
        std::fprintf(out_, "\n");
    }
    std::fflush(out_);
}

void Table::print_goals(const std::vector<GoalRow>& goals) {
    if (goals.empty()) return;
    size_t words = 0;
    for (const GoalRow& row : goals) words = std::max(words, std::strlen(row.goal->words));
    const auto print = [&](const std::string& issue, const char* goal, const std::string& workload,
                           const Judgement& j) {
        std::fprintf(out_, "%5s %-*s %10s %8s  %-20s %-*s  %s\n", issue.c_str(), int(words), goal,
                     j.wanted.c_str(), j.reached.c_str(), j.verdict.c_str(), width_, workload.c_str(),
                     j.ratio);
    };
    Judgement titles = {"wanted", "reached", "verdict"};
    titles.ratio = "ratio";
    std::fprintf(out_, "\n");
    print("issue", "goal", "workload", titles);
    for (const GoalRow& row : goals)
        print(std::to_string(row.goal->issue), row.goal->words,
              row.goal->settings ? row.workload.name() : "-",
              judge(row, row.why_not.empty() ? result_of(row.workload.name()) : nullptr));
    std::fflush(out_);
}

}  // namespace bench
