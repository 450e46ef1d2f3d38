#include "bench/measure.h"

#include <algorithm>
#include <chrono>

#include "bench/cache.h"
#include "bench/call.h"
#include "bench/model.h"
#include "bench/model_counts.h"
#include "bench/pieces.h"
#include "bench/report.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

// Limits are sampled before the first run, and at the beginning of every turn.
constexpr int kFirstSamples = 3;
constexpr auto kTurn = std::chrono::milliseconds(25);

// Calls of one thread each, as many at once as a workload has threads.
class Apart {
public:
    explicit Apart(Workload w) : threads_(w.threads) {
        w.threads = 1;
        for (int i = 0; i < threads_; ++i) calls_.push_back(make_call(w));
        for (const auto& call : calls_) call->run(0);  // generates the code
    }
    // The speed of all together, to that of one alone.
    double speed() const {
        const auto work = [&](int index) {
            for (int i = 0; i < kCalls; ++i) calls_[size_t(index)]->run(0);
        };
        const double alone = seconds_together(1, work);
        return threads_ * alone / seconds_together(threads_, work);
    }

private:
    static constexpr int kCalls = 8;
    const int threads_;
    std::vector<std::unique_ptr<Call>> calls_;
};

class Sampler {
public:
    explicit Sampler(const Workload& workload)
        : workload_(workload),
          wanted_{
              workload.is_append, workload.precision != QUIRE_PRECISION_HIGHEST, target_of(workload), {}} {
        if (workload.is_cold()) cache_ = &cache_of(workload);
        if (workload.is_decode() && workload.warm && workload.threads > 1)
            apart_ = std::make_unique<Apart>(workload);
        for (int i = 0; i < kFirstSamples; ++i) sample(i);
    }
    bool is_due() const { return Clock::now() - sampled_ >= kTurn; }
    // Before run i.
    void sample(int64_t i) {
        if (cache_) wanted_.read = cache_->plain_read(i);
        Limits limits = sample_limits(workload_.threads, wanted_);
        if (cache_ && workload_.window == 0) limits.pages_bytes_per_s = read_pages(i);
        if (apart_) limits.apart = apart_->speed();
        samples_.add(limits);
        if (workload_.target.empty()) report_limits(workload_.threads, limits);
        sampled_ = Clock::now();
    }
    Limits usual() const { return samples_.usual(); }

private:
    // Of the layer before the one that is read plainly, which run i does not come to either.
    double read_pages(int64_t i) {
        const size_t layers = size_t(cache_->layers()), layer = (size_t(i) + layers / 2 - 1) % layers;
        pieces_.resize(layers);
        if (pieces_[layer].empty()) pieces_[layer] = pieces_of(*cache_, workload_, int64_t(layer));
        return read_pieces_per_s(workload_.threads, pieces_[layer]);
    }

    const Workload workload_;
    const PagedCache* cache_ = nullptr;       // the workload's, where it is read from memory
    std::vector<std::vector<Piece>> pieces_;  // of each layer
    std::unique_ptr<Apart> apart_;
    Wanted wanted_;
    LimitSamples samples_;
    Clock::time_point sampled_;
};

double over(double a, double b) { return b > 0 ? a / b : 0; }

Result make_result(const Workload& w, Call& call, const std::vector<double>& times, const Limits& limits) {
    const double seconds = median_of(times), bytes = w.cache_bytes(), flops = w.flops();
    Result r{};
    r.workload = w;
    r.target = target_of(w);
    r.precision = call.runs_as(w.query_len * w.heads / w.kv_heads);
    r.limits = limits;
    r.runs = int64_t(times.size());
    r.time_ms = seconds * 1e3;
    r.time_min_ms = quantile_of(times, 0) * 1e3;
    r.spread = over(quantile_of(times, 0.75) - quantile_of(times, 0.25), seconds);
    r.cache_gb_per_s = bytes / seconds / 1e9;
    r.gflop_per_s = flops / seconds / 1e9;
    const double peak = limits.peak_of(r.precision);
    r.predicted = call.predict(limits.read_bytes_per_s, peak);
    r.dram_share = over(bytes / seconds, limits.read_bytes_per_s);
    r.pages_share = over(bytes / seconds, limits.pages_bytes_per_s);
    r.peak_share = over(flops / seconds, peak);
    r.roofline_share = r.predicted.seconds / seconds;
    if (w.is_append) {
        const int64_t elements = w.new_tokens() * w.kv_heads * (w.head_dim + w.dim_of_values());
        const double new_bytes = double(quire_bytes_of(w.type, elements));
        r.memcpy_share = over(new_bytes, limits.copy_bytes_per_s) / seconds;
    }
    if (!w.is_append) r.cycles = seconds * limits.cycles_per_s * w.threads / units_of(w);
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

// A workload with what is measured of it.
class Contestant {
public:
    explicit Contestant(const Workload& workload) : workload_(workload), call_(make_call(workload)) {
        call_->run(0);  // generates the code
    }
    bool is_due() const { return limits_.is_due(); }
    void sample() { limits_.sample(next_); }
    void run() {
        const auto begin = Clock::now();
        call_->run(next_++);
        times_.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    void take_turn() {
        sample();
        do run();
        while (!is_due());
    }
    Result result() const { return make_result(workload_, *call_, times_, limits_.usual()); }

private:
    const Workload workload_;
    const std::unique_ptr<Call> call_;
    Sampler limits_{workload_};
    std::vector<double> times_;
    int64_t next_ = 1;
};

}  // namespace

void measure(benchmark::State& state, const Turns& turns) {
    std::vector<Workload> all = turns.beside;
    all.push_back(turns.workload);
    if (turns.with_model)
        for (const Workload& each : all) model_of(each);
    if (turns.near) all.push_back(*turns.near);
    keep_caches_of(all);
    Contestant measured(turns.workload);
    std::vector<std::unique_ptr<Contestant>> others;
    for (const Workload& other : turns.beside) others.push_back(std::make_unique<Contestant>(other));
    if (turns.near) others.push_back(std::make_unique<Contestant>(*turns.near));
    const auto others_turn = [&] {
        for (const auto& other : others) other->take_turn();
    };
    others_turn();
    for (auto _ : state) {
        if (measured.is_due()) {
            state.PauseTiming();
            others_turn();
            measured.sample();
            state.ResumeTiming();
        }
        measured.run();
    }
    Result result = measured.result();
    for (const auto& other : others) result.beside.push_back(other->result());
    if (turns.near) {
        result.near_cycles = result.beside.back().cycles;
        result.beside.pop_back();
    }
    if (turns.with_model) {
        result.model = model_of(turns.workload);
        for (Result& other : result.beside) other.model = model_of(other.workload);
    }
    add_counters(state, result);
    report(result);
}

}  // namespace bench
