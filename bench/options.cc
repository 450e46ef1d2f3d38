#include "bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>

#include "bench/generated.h"
#include "bench/named.h"
#include "bench/pipes.h"
#include "bench/settings.h"

namespace bench {
namespace {

[[noreturn]] void refuse(const std::string& message) {
    std::fprintf(stderr, "quire_bench: %s\n", message.c_str());
    std::exit(2);
}

constexpr char kFooter[] =
    R"(Without a name and without sizes every named workload is run. Sizes given with a name change the named
workloads; without one they make a workload of their own: decode of 32 heads, 8 kv heads of 128, over 32768
keys in int8, groups of 32. Every size takes a list (int8,int4), a range that doubles (1k..64k), or one with
steps (1..8+1); all combinations are run.
Columns: ms is the median of the runs, spread that of their middle half; GB/s of the cache; shares are of a
plain DRAM read, of the arithmetic's peak (float32 FMA, or integer products where the precision has them) and
of the bound that quire_run_predict gives, all measured between the runs; memcpy: time of a memcpy of the new
rows over that of append; cycles of a core: of decode a (token, kv head), of prefill a (new token, head).
Goals are what the project's issues ask for. Those about the workloads that were run are printed in the end;
--goals runs theirs alone. What a goal compares a workload with takes turns with it, in rows "beside". Sizes
given with --goals, one value each, change all its workloads; what is wanted stays.
Other options --benchmark_... go to Google Benchmark (--benchmark_min_time=SECONDS).)";

std::vector<Workload> named(const std::string& filter) {
    std::vector<Workload> found;
    try {
        const std::regex pattern(filter);
        for (const Workload& workload : named_workloads())
            if (std::regex_search(workload.name(), pattern)) found.push_back(workload);
    } catch (const std::regex_error&) {
        refuse("FILTER is \"" + filter + "\": must be a regular expression");
    }
    if (found.empty()) refuse("FILTER is \"" + filter + "\": no named workload matches; --list names them");
    return found;
}

// All of them before the first is run: a long sweep does not end in a mistake.
void refuse_impossible(const std::vector<Workload>& workloads) {
    for (const Workload& workload : workloads) {
        const std::string why = why_impossible({workload});
        if (!why.empty()) refuse(workload.name() + ": " + why);
    }
}

// Of goals, a row that can't be run says why.
void leave_out_impossible(std::vector<GoalRow>* goals) {
    for (GoalRow& row : *goals) {
        std::vector<Workload> all = row.beside;
        all.push_back(row.workload);
        if (row.why_not.empty()) row.why_not = why_impossible(all);
    }
}

constexpr const char* kAreas[] = {"decode", "prefill", "append"};

std::vector<GoalRow> goals_of(const std::string& area, const std::vector<Sweep>& changes) {
    for (const Sweep& change : changes)
        if (change.values.size() != 1)
            refuse(std::string("--") + change.setting->name + " has " + std::to_string(change.values.size()) +
                   " values: must be one with --goals");
    if (area != "all" && std::find(std::begin(kAreas), std::end(kAreas), area) == std::end(kAreas))
        refuse("--goals is \"" + area + "\": must be decode, prefill, append or all");
    return goal_rows(area, changes);
}

std::vector<Workload> workloads_of(const std::vector<GoalRow>& goals) {
    std::vector<Workload> all;
    for (const GoalRow& row : goals)
        if (row.why_not.empty()) all.push_back(row.workload);
    return combined(all, {});
}

// The goals about workloads that are run in any case; where those are all of an area, also the goals of it
// that can't be run.
std::vector<GoalRow> goals_about(const std::vector<Workload>& workloads) {
    std::set<std::string> names;
    for (const Workload& workload : workloads) names.insert(workload.name());
    std::vector<GoalRow> found;
    for (const char* area : kAreas) {
        const std::vector<GoalRow> rows = goal_rows(area, {});
        const auto is_run = [&](const GoalRow& row) {
            return row.why_not.empty() && names.count(row.workload.name()) > 0;
        };
        const bool any = std::any_of(rows.begin(), rows.end(), is_run);
        const bool all = any && std::all_of(rows.begin(), rows.end(), [&](const GoalRow& row) {
                             return !row.why_not.empty() || is_run(row);
                         });
        for (const GoalRow& row : rows)
            if (is_run(row) || (all && !row.why_not.empty())) found.push_back(row);
    }
    leave_out_impossible(&found);
    return found;
}

Workload usual() {
    Workload workload;
    workload.threads = thread_counts().back();
    return workload;
}

void choose(Options* options, const std::string& filter, const std::string& area,
            const std::vector<Sweep>& sweeps) {
    if (!area.empty()) {
        if (!filter.empty()) refuse("FILTER is \"" + filter + "\": must not be given with --goals");
        options->goals = goals_of(area, sweeps);
        leave_out_impossible(&options->goals);
        options->workloads = workloads_of(options->goals);
        if (options->workloads.empty())
            refuse(options->goals[0].workload.name() + ": " + options->goals[0].why_not);
        return;
    }
    const bool own = filter.empty() && !sweeps.empty();
    options->workloads = combined(own ? std::vector<Workload>{usual()} : named(filter), sweeps);
    if (options->list) return;
    refuse_impossible(options->workloads);
    options->goals = goals_about(options->workloads);
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    CLI::App app("Benchmarks of quire, against the limits that the machine has between the runs",
                 "quire_bench");
    app.footer(kFooter);
    app.allow_extras();
    std::string filter, area;
    std::vector<std::string> sweep_texts;
    std::map<const Setting*, std::string> given;
    app.add_option("FILTER,--benchmark_filter", filter, "regular expression of names: decode/int8_g32/.*/t2");
    app.add_option("--goals", area,
                   "decode, prefill, append or all: what the issues ask for, and what is reached");
    app.add_flag("--list", options.list, "name the workloads, and run none");
    app.add_flag("--once", options.once,
                 "run each workload once and time nothing: for counting instructions");
    app.add_flag("--model", options.model,
                 "attention: what the pipes of its instructions, which are counted, and memory allow");
    std::string pipes;
    app.add_option("--pipes", pipes, "--model: count for those of another processor: " + known_pipes());
    app.add_option("--json", options.json, "write machine, limits and results here; -: stdout");
    app.add_option("--csv", options.csv, "write the results here; -: stdout");
    app.add_option("--sweep", sweep_texts, "NAME=VALUES, NAME a size: kv-len=1k..64k")
        ->allow_extra_args(false);
    for (const Setting& setting : settings())
        app.add_option("--" + std::string(setting.name), given[&setting], setting.help)->group("Sizes");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {
        std::exit(app.exit(asked));
    } catch (const CLI::ParseError& error) {
        refuse(error.what());
    }
    for (const std::string& extra : app.remaining()) {
        if (extra.rfind("--benchmark_", 0) != 0) refuse(extra + ": unknown; --help lists the options");
        options.google.push_back(extra);
    }
    if (!pipes.empty() && !options.model) refuse("--pipes " + pipes + ": is of --model, which is not given");
    if (!pipes.empty() && !take_pipes_of(pipes))
        refuse("--pipes " + pipes + ": must be one of " + known_pipes());
    if (options.model) watch_generated_code();
    options.is_goals = !area.empty();
    for (int i = 0; i < argc; ++i) options.command += (i ? " " : "") + std::string(argv[i]);

    try {
        std::vector<Sweep> sweeps;
        for (const Setting& setting : settings())
            if (!given[&setting].empty()) sweeps.push_back(make_sweep(setting, given[&setting]));
        for (const std::string& text : sweep_texts) sweeps.push_back(parse_sweep(text));
        choose(&options, filter, area, sweeps);
    } catch (const std::invalid_argument& wrong) {
        refuse(wrong.what());
    }
    return options;
}

}  // namespace bench
