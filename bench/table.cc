#include "bench/table.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "bench/model.h"
#include "bench/model_counts.h"
#include "bench/pipes.h"
#include "bench/report.h"

namespace bench {
namespace {

// From so many workloads on, rows say which one of how many they are.
constexpr size_t kLong = 10;

// Before the name of a workload that is only compared with.
constexpr char kBeside[] = "  beside ";
constexpr char kTogether[] = "together";

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

// With models, behind what a goal reached.
using Counts = std::array<std::string, 5>;
Counts counts_of(const GoalRow& row, const Result& r) {
    const double work = r.model && is_of_this_machine() ? r.model->cycles : 0;
    return {allowed(row, r), fixed("%.1f", r.cycles), fixed("%.1f", r.near_cycles), fixed("%.1f", work),
            fixed("%.1f", memory_cycles(r))};
}

}  // namespace

void Table::print_titles() {
    titled_ = true;
    std::fprintf(out_, "%-*s %10s %7s %7s %8s %6s %6s %6s %6s %7s %7s", width_, "workload", "ms", "spread",
                 "GB/s", "GFLOP/s", "DRAM", "pages", "peak", "bound", "memcpy", "cycles");
    if (with_model_) std::fprintf(out_, " %8s %8s", "allowed", "model ms");
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
    std::fprintf(out_, "%-*s %10s %7s %7s %8s %6s %6s %6s %6s %7s %7s", width_, name.c_str(),
                 fixed("%.4g", r.time_ms).c_str(), percent(r.spread).c_str(),
                 fixed("%.2f", r.cache_gb_per_s).c_str(), fixed("%.1f", r.gflop_per_s).c_str(),
                 percent(r.dram_share).c_str(), percent(r.pages_share).c_str(), percent(r.peak_share).c_str(),
                 percent(r.roofline_share).c_str(), percent(r.memcpy_share).c_str(),
                 fixed("%.1f", r.cycles).c_str());
    if (!with_model_) return;
    const std::unique_ptr<Result> model = modelled(r);
    std::fprintf(out_, " %8s %8s", model ? percent(model->roofline_share).c_str() : "-",
                 model ? fixed("%.4g", model->time_ms).c_str() : "-");
}

void Table::ReportRuns(const std::vector<Run>& runs) {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
    if (!titled_) print_titles();
    ++done_;
    const Result& r = *result_of(current_);
    if (with_model_) models_.push_back(&r);
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

void Table::print_model(const Result& r) {
    std::fprintf(out_, "\n%s: at least, %s\n", r.workload.name().c_str(), unit_words(r.workload));
    if (!r.model->why_not.empty()) {
        std::fprintf(out_, "    no model: %s\n", r.model->why_not.c_str());
        return;
    }
    size_t width = std::strlen(kTogether);
    for (const ModelPart& part : r.model->parts) width = std::max(width, part.name.size());
    for (const ModelPart& part : r.model->parts)
        std::fprintf(out_, "    %-*s %7.1f instructions %6.1f loads %5.1f stores %6.1f cycles: %s%s%s\n",
                     int(width), part.name.c_str(), part.instructions, part.loads, part.stores, part.cycles,
                     part.bound_by.c_str(), part.started.empty() ? "" : "; ", part.started.c_str());
    std::fprintf(out_, "    %-*s %41.1f cycles", int(width), kTogether, r.model->cycles);
    is_of_this_machine() ? std::fprintf(out_, ", of %.1f measured\n", r.cycles)
                         : std::fprintf(out_, " on %s\n", processor_of_model()->name);
}

void Table::print_models() {
    for (const Result* result : models_) print_model(*result);
}

void Table::print_goals(const std::vector<GoalRow>& goals) {
    if (goals.empty()) return;
    size_t words = 0;
    for (const GoalRow& row : goals) words = std::max(words, std::strlen(row.goal->words));
    const auto print = [&](const std::string& issue, const char* goal, const std::string& workload,
                           const Judgement& j, const Counts& counts) {
        std::fprintf(out_, "%5s %-*s %10s %8s", issue.c_str(), int(words), goal, j.wanted.c_str(),
                     j.reached.c_str());
        for (const std::string& count : counts)
            if (with_model_) std::fprintf(out_, " %8s", count.c_str());
        std::fprintf(out_, "  %-37s %-*s  %s\n", j.verdict.c_str(), width_, workload.c_str(), j.ratio);
    };
    Judgement titles = {"wanted", "reached", "verdict"};
    titles.ratio = "ratio";
    std::fprintf(out_, "\n");
    print("issue", "goal", "workload", titles, {"allowed", "cycles", "near", "work", "memory"});
    for (const GoalRow& row : goals) {
        const Result* const result = row.why_not.empty() ? result_of(row.workload.name()) : nullptr;
        print(std::to_string(row.goal->issue), row.goal->words,
              row.goal->settings ? row.workload.name() : "-", judge(row, result),
              result ? counts_of(row, *result) : Counts{"-", "-", "-", "-", "-"});
    }
    std::fflush(out_);
}

}  // namespace bench
