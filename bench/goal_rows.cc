// Goals as rows: what is to be run for them, and what the results say.
#include <cmath>
#include <sstream>
#include <thread>

#include "bench/call.h"
#include "bench/goals.h"
#include "bench/model.h"

namespace bench {
namespace {

// "cache=int8 group=32,128"
std::vector<Sweep> sweeps_of(const char* settings) {
    std::vector<Sweep> sweeps;
    std::istringstream words(settings);
    for (std::string word; words >> word;) sweeps.push_back(parse_sweep(word));
    return sweeps;
}

std::vector<Sweep> both(std::vector<Sweep> first, const std::vector<Sweep>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

std::string why_not(const GoalRow& row) {
    const int processors = int(std::thread::hardware_concurrency());
    if (row.workload.threads > processors)
        return "needs " + std::to_string(row.workload.threads) + " processors";
    if (!row.workload.target.empty() && target_of(row.workload) == target_of(row.beside[0]))
        return "no higher target";
    return "";
}

std::string text_of(Unit unit, double ratio) {
    char text[32];
    switch (unit) {
        case Unit::share: std::snprintf(text, sizeof text, "%.0f %%", ratio * 100); break;
        case Unit::times: std::snprintf(text, sizeof text, "%.2f x", ratio); break;
        default: std::snprintf(text, sizeof text, "%.2f us", ratio);
    }
    return text;
}

// Both in the units of the last digit that is printed.
std::string verdict_of(const Ratio& ratio, double wanted, double reached) {
    const long missed = std::lround(wanted * 100) - std::lround(reached * 100);
    if (ratio.at_most ? missed >= 0 : missed <= 0) return "reached";
    if (ratio.unit == Unit::share) return "missed by " + std::to_string(missed) + " points";
    return "missed by " + text_of(ratio.unit, std::abs(double(missed)) / 100);
}

std::vector<Result> results_beside(const GoalRow& row, const Result& result) {
    std::vector<Result> found;
    for (const Workload& other : row.beside)
        for (const Result& beside : result.beside)
            if (beside.workload.name() == other.name()) found.push_back(beside);
    return found;
}

}  // namespace

std::vector<GoalRow> goal_rows(const std::string& area, const std::vector<Sweep>& changes) {
    std::vector<GoalRow> rows;
    Workload usual;
    usual.threads = 2;
    for (const Goal& goal : goals())
        for (const Workload& w : combined({usual}, sweeps_of(goal.settings))) {
            if (area != "all" && w.name().rfind(area + "/", 0) != 0) continue;
            GoalRow row{&goal, combined({w}, changes)[0], {}, ""};
            if (goal.beside) row.beside = combined({w}, both(sweeps_of(goal.beside), changes));
            row.why_not = why_not(row);
            rows.push_back(row);
        }
    return rows;
}

std::vector<Workload> beside_of(const std::vector<GoalRow>& rows, const Workload& workload) {
    std::vector<Workload> all;
    for (const GoalRow& row : rows)
        if (row.workload.name() == workload.name())
            all.insert(all.end(), row.beside.begin(), row.beside.end());
    return combined(all, {});  // each once
}

Judgement judge(const GoalRow& row, const Result* result) {
    const Ratio& ratio = *row.goal->ratio;
    const bool is_wide = target_of(row.workload).rfind("avx512", 0) == 0;
    Judgement j;
    j.wanted_ratio = !is_wide && row.goal->wanted_avx2 > 0 ? row.goal->wanted_avx2 : row.goal->wanted;
    j.wanted = (ratio.at_most ? "<= " : ">= ") + text_of(ratio.unit, j.wanted_ratio);
    j.reached = "-";
    j.verdict = row.why_not.empty() ? "not run" : row.why_not;
    j.ratio = ratio.words;
    if (!result) return j;

    const std::vector<Result> beside = results_beside(row, *result);
    j.reached_ratio = ratio.of(*result, beside);
    j.verdict = verdict_of(ratio, j.wanted_ratio, j.reached_ratio);
    if (j.reached_ratio == 0 && ratio.otherwise) {
        j.reached_ratio = ratio.otherwise->of(*result, beside);
        j.verdict = "no such peak here";
        j.ratio = ratio.otherwise->words;
    }
    j.reached = text_of(ratio.unit, j.reached_ratio);
    if (result->precision != row.workload.precision && !row.workload.is_append)
        j.verdict += " (runs as " + precision_name(result->precision) + ")";
    return j;
}

std::string allowed(const GoalRow& row, const Result& result) {
    std::vector<Result> all = results_beside(row, result);
    all.push_back(result);
    for (Result& each : all) {
        const std::unique_ptr<Result> model = modelled(each);
        if (!model) return "-";
        each = *model;
    }
    const Result own = all.back();
    all.pop_back();
    return text_of(row.goal->ratio->unit, row.goal->ratio->of(own, all));
}

}  // namespace bench
