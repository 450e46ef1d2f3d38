// quire_bench [FILTER] [OPTION...]: see --help.
#include <algorithm>
#include <cstdio>

#include "bench/call.h"
#include "bench/model_counts.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/table.h"

namespace {

// With as many threads as the workloads have.
void print_limits(const char* when, const std::vector<int>& thread_counts) {
    for (int threads : thread_counts) {
        const bench::Limits limits = bench::limits_of(threads);
        std::fprintf(stderr, "limits %s, %d thread%s: DRAM read %.1f GB/s, float32 FMA %.1f GFLOP/s, ", when,
                     threads, threads == 1 ? "" : "s", limits.read_bytes_per_s / 1e9,
                     limits.fma_flops_per_s / 1e9);
        if (limits.fma_flops_per_s > 0)
            std::fprintf(stderr, "of which %.1f %% all through 10 ms, ",
                         limits.fma_steady_flops_per_s / limits.fma_flops_per_s * 100);
        std::fprintf(stderr, "clock %.2f GHz\n", limits.cycles_per_s / 1e9);
    }
}

std::vector<int> threads_of(const std::vector<bench::Workload>& workloads) {
    std::vector<int> counts;
    for (const bench::Workload& w : workloads)
        if (std::find(counts.begin(), counts.end(), w.threads) == counts.end()) counts.push_back(w.threads);
    return counts;
}

size_t width_of(const bench::Options& options) {
    size_t width = 40;
    const auto fit = [&](const bench::Workload& w, size_t before) {
        width = std::max(width, before + w.name().size());
    };
    for (const bench::Workload& workload : options.workloads) {
        fit(workload, 0);
        for (const bench::Workload& other : bench::beside_of(options.goals, workload)) fit(other, 9);
    }
    return width;
}

// Google Benchmark's own options, which come as the rest of a command line.
bool initialize(const bench::Options& options, bool* has_format) {
    std::vector<std::string> words = {"quire_bench"};
    words.insert(words.end(), options.google.begin(), options.google.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    int argc = int(argv.size());
    *has_format = false;
    for (const std::string& word : words) *has_format |= word.rfind("--benchmark_format", 0) == 0;
    benchmark::Initialize(&argc, argv.data());
    return !benchmark::ReportUnrecognizedArguments(argc, argv.data());
}

bool written(bool good, const std::string& path) {
    if (!good) std::fprintf(stderr, "quire_bench: can't write %s\n", path.c_str());
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse_options(argc, argv);
    if (options.list) {
        for (const bench::Workload& workload : options.workloads) std::puts(workload.name().c_str());
        return 0;
    }
    if (options.once) {
        for (const bench::Workload& workload : options.workloads) {
            bench::keep_caches_of({workload});
            bench::make_call(workload)->run(0);
        }
        return 0;
    }
    bool has_format = false;
    if (!initialize(options, &has_format)) return 2;
    const bool to_stdout = options.json == "-" || options.csv == "-";
    bench::Table table(to_stdout ? stderr : stdout, options.workloads.size(), width_of(options),
                       options.model);
    for (const bench::Workload& workload : options.workloads) {
        const std::string name = workload.name();
        auto turns = std::make_shared<bench::Turns>();
        turns->workload = workload;
        turns->beside = bench::beside_of(options.goals, workload);
        turns->with_model = options.model;
        if (options.model && !options.goals.empty() && workload.is_cold())
            turns->near = std::make_unique<bench::Workload>(bench::near_of(workload));
        benchmark::RegisterBenchmark(name.c_str(),
                                     [turns, name, &table](benchmark::State& state) {
                                         table.begin(name);
                                         bench::measure(state, *turns);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
    }
    const std::vector<int> threads = threads_of(options.workloads);
    std::fprintf(stderr, "quire %s, target %s, %s\n", quire_version(),
                 quire_target_name(bench::context_of(1)), bench::machine_name().c_str());
    print_limits("at the beginning", threads);
    if (has_format)
        benchmark::RunSpecifiedBenchmarks();
    else
        benchmark::RunSpecifiedBenchmarks(&table);
    print_limits("over the whole run", threads);
    if (!has_format) {
        if (!options.is_goals) table.print_models();
        table.print_goals(options.goals);
    }
    bool good = options.json.empty() ||
                written(bench::write_json(options.json, options.command, options.goals), options.json);
    good = (options.csv.empty() || written(bench::write_csv(options.csv), options.csv)) && good;
    return good ? 0 : 1;
}
