#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "bench/report.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

// Limits are sampled before the first run, and between two runs after so long.
constexpr int kFirstSamples = 3;
constexpr auto kSamplePeriod = std::chrono::milliseconds(25);

// Shares are of medians, so that a run that was interrupted does not count.
Result make_result(const Workload& workload, double bytes, double flops, double seconds,
                   const Limits& limits) {
    Result r{};
    r.workload = workload;
    r.target = quire_target_name(context_of(workload.threads));
    r.time_ms = seconds * 1e3;
    r.cache_gb_per_s = bytes / seconds / 1e9;
    r.gflop_per_s = flops / seconds / 1e9;
    r.dram_share = bytes / seconds / limits.read_bytes_per_s;
    r.peak_share = limits.fma_flops_per_s > 0 ? flops / seconds / limits.fma_flops_per_s : 0;
    r.roofline_share = std::max(r.dram_share, r.peak_share);
    return r;
}

}  // namespace

double Workload::cache_bytes() const {
    return double(batch) * double(kv_len) * 2 * double(Hk * D) * cache->bytes_per_value;
}

double Workload::pairs() const {
    const double s = double(query_len), t = double(kv_len);
    return double(batch) * (s * (t - s) + s * (s + 1) / 2);
}

void measure(benchmark::State& state, const Workload& workload, double bytes, double flops,
             const std::function<void(int64_t)>& run) {
    LimitSamples limits;
    auto sample = [&] {
        limits.add(sample_limits(workload.threads));
        report_limits(workload.threads, limits.last());
    };
    std::vector<double> times;
    run(0);  // generates the code
    int64_t i = 1;
    for (int k = 0; k < kFirstSamples; ++k) sample();
    auto sampled = Clock::now();
    for (auto _ : state) {
        if (Clock::now() - sampled >= kSamplePeriod) {
            state.PauseTiming();
            sample();
            sampled = Clock::now();
            state.ResumeTiming();
        }
        const auto begin = Clock::now();
        run(i++);
        times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    const Result r = make_result(workload, bytes, flops, median_of(times), limits.median());
    state.counters["ms"] = r.time_ms;
    state.counters["cache_GB/s"] = r.cache_gb_per_s;
    if (flops > 0) state.counters["GFLOP/s"] = r.gflop_per_s;
    state.counters["dram_share"] = r.dram_share;
    if (flops > 0) state.counters["fma_share"] = r.peak_share;
    state.counters["roofline_share"] = r.roofline_share;
    report(r);
}

const std::vector<int>& thread_counts() {
    static const std::vector<int> counts = [] {
        std::vector<int> c = {1, 2};
        const int all = int(std::thread::hardware_concurrency());
        if (all > 2) c.push_back(all);
        return c;
    }();
    return counts;
}

void check(quire_status status) {
    if (status == QUIRE_OK) return;
    std::fprintf(stderr, "quire_bench: %s\n", quire_last_error());
    std::exit(1);
}

quire_context* context_of(int threads) {
    static std::map<int, quire_context*> contexts;
    quire_context*& context = contexts[threads];
    if (!context) {
        quire_context_options options{};
        options.struct_size = sizeof options;
        options.num_threads = threads;
        check(quire_context_create(&options, &context));
    }
    return context;
}

const PagedCache& cache_of(const Workload& workload, size_t min_bytes) {
    static std::unique_ptr<PagedCache> cache;
    static std::string key;
    const std::string wanted = workload.cache->name + "/" + std::to_string(workload.batch) + "x" +
                               std::to_string(workload.kv_len) + "/" + std::to_string(min_bytes);
    if (wanted != key) {
        cache.reset();  // before the next one is made: there may not be memory for both
        cache = std::make_unique<PagedCache>(*workload.cache, workload.batch, workload.kv_len, min_bytes);
        key = wanted;
    }
    return *cache;
}

}  // namespace bench
