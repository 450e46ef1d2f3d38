#include "bench/measure.h"

#include <algorithm>
#include <chrono>

#include "bench/call.h"
#include "bench/report.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

// Limits are sampled before the first run, and between two runs after so long.
constexpr int kFirstSamples = 3;
constexpr auto kSamplePeriod = std::chrono::milliseconds(25);

class Sampler {
public:
    explicit Sampler(const Workload& workload)
        : threads_(workload.threads),
          wanted_{workload.is_append, workload.precision != QUIRE_PRECISION_HIGHEST} {
        for (int i = 0; i < kFirstSamples; ++i) sample();
    }
    bool is_due() const { return Clock::now() - sampled_ >= kSamplePeriod; }
    void sample() {
        const Limits limits = sample_limits(threads_, wanted_);
        samples_.add(limits);
        report_limits(threads_, limits);
        sampled_ = Clock::now();
    }
    Limits median() const { return samples_.median(); }

private:
    const int threads_;
    const Wanted wanted_;
    LimitSamples samples_;
    Clock::time_point sampled_;
};

double over(double a, double b) { return b > 0 ? a / b : 0; }

Result make_result(const Workload& w, Call& call, const std::vector<double>& times, const Limits& limits) {
    const double seconds = median_of(times), bytes = w.cache_bytes(), flops = w.flops();
    Result r{};
    r.workload = w;
    r.target = quire_target_name(context_of(w.threads));
    r.precision = call.runs_as_high(w.query_len * w.heads / w.kv_heads) ? QUIRE_PRECISION_HIGH
                                                                        : QUIRE_PRECISION_HIGHEST;
    r.runs = int64_t(times.size());
    r.time_ms = seconds * 1e3;
    r.time_min_ms = quantile_of(times, 0) * 1e3;
    r.spread = over(quantile_of(times, 0.75) - quantile_of(times, 0.25), seconds);
    r.cache_gb_per_s = bytes / seconds / 1e9;
    r.gflop_per_s = flops / seconds / 1e9;
    const double peak = limits.peak_of(r.precision);
    r.predicted = call.predict(limits.read_bytes_per_s, peak);
    r.dram_share = over(bytes / seconds, limits.read_bytes_per_s);
    r.peak_share = over(flops / seconds, peak);
    r.roofline_share = r.predicted.seconds / seconds;
    if (w.is_append) {
        const double rows = double(w.batch * w.query_len * w.kv_heads);
        const double new_bytes = rows * 2 * double(quire_bytes_of(w.type, w.head_dim));
        r.memcpy_share = over(new_bytes, limits.copy_bytes_per_s) / seconds;
    }
    if (w.is_decode())
        r.cycles = seconds * limits.cycles_per_s * w.threads / double(w.batch * w.kv_len * w.kv_heads);
    return r;
}

void add_counters(benchmark::State& state, const Result& r) {
    state.counters["ms"] = r.time_ms;
    state.counters["cache_GB/s"] = r.cache_gb_per_s;
    state.counters["dram_share"] = r.dram_share;
    state.counters["roofline_share"] = r.roofline_share;
    if (r.gflop_per_s > 0) state.counters["GFLOP/s"] = r.gflop_per_s;
    if (r.peak_share > 0) state.counters["fma_share"] = r.peak_share;
    if (r.memcpy_share > 0) state.counters["memcpy_share"] = r.memcpy_share;
    if (r.cycles > 0) state.counters["cycles"] = r.cycles;
}

}  // namespace

void measure(benchmark::State& state, const Workload& workload) {
    const std::unique_ptr<Call> call = make_call(workload);
    call->run(0);  // generates the code
    Sampler limits(workload);
    std::vector<double> times;
    int64_t i = 1;
    for (auto _ : state) {
        if (limits.is_due()) {
            state.PauseTiming();
            limits.sample();
            state.ResumeTiming();
        }
        const auto begin = Clock::now();
        call->run(i++);
        times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    const Result result = make_result(workload, *call, times, limits.median());
    add_counters(state, result);
    report(result);
}

}  // namespace bench
