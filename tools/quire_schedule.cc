// quire_schedule: runs one call of a benchmark's workload on threads of its own, and writes as JSON which of
// them ran which work item when. Options as quire_bench; `./dev plots` draws it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/call.h"
#include "bench/options.h"
#include "bench/report.h"
#include "src/execute.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kRuns = 15;  // of which the shortest is shown: the one that was interrupted least

struct Span {
    const char* phase;
    int64_t item, count;  // from that one on
    Clock::time_point begin, end;
};

// Of threads that ask again and again: a phase is short.
class Barrier {
public:
    explicit Barrier(int count) : count_(count) {}
    void wait() {
        const int turn = turn_;
        if (++arrived_ == count_) {
            arrived_ = 0;
            ++turn_;
        }
        while (turn_ == turn) std::this_thread::yield();
    }

private:
    const int count_;
    std::atomic<int> arrived_{0}, turn_{0};
};

const char* name_of(int phase) {
    switch (phase) {
        case Run::kAppend: return "append";
        case Run::kInputs: return "inputs";
        case Run::kCopies: return "copies";
        case Run::kRead: return "read";
        case Run::kScan: return "scan";
        case Run::kAttend: return "attend";
        case Run::kOutputs: return "outputs";
        default: return "other";
    }
}

// What run_slice of src/execute.cc does, with the time of every item, or of those that are run together.
std::vector<Span> run_slice_timed(Run& run, int index, int threads, Barrier& barrier) {
    std::vector<Span> spans;
    spans.reserve(1 << 16);
    run.prepare_worker(index);
    FloatEnvironment environment;
    for (int phase = 0; phase < Run::kPhases; ++phase) {
        barrier.wait();
        run.share(phase, threads, [&](Run::Items now, Run::Items following) {
            const auto begin = Clock::now();
            run.run_items(phase, now, following, index);
            spans.push_back({name_of(phase), now.begin, now.end - now.begin, begin, Clock::now()});
        });
    }
    return spans;
}

// A list for each thread.
std::vector<std::vector<Span>> run_timed(bench::Call& call, int64_t number, int threads) {
    quire_run* prepared = call.prepared(number);
    Run& run = *reinterpret_cast<Run*>(prepared);  // what a quire_run is: src/api_calls.h
    Barrier barrier(threads);
    std::vector<std::vector<Span>> spans(threads);
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i)
        others.emplace_back([&, i] { spans[i] = run_slice_timed(run, i, threads, barrier); });
    spans[0] = run_slice_timed(run, 0, threads, barrier);
    for (std::thread& thread : others) thread.join();
    quire_run_release(prepared);
    return spans;
}

Clock::time_point first_of(const std::vector<std::vector<Span>>& spans) {
    auto first = Clock::time_point::max();
    for (const auto& list : spans)
        for (const Span& span : list) first = std::min(first, span.begin);
    return first;
}

Clock::duration length_of(const std::vector<std::vector<Span>>& spans) {
    auto last = Clock::time_point::min();
    for (const auto& list : spans)
        for (const Span& span : list) last = std::max(last, span.end);
    return last - first_of(spans);
}

Json json_of(const std::vector<std::vector<Span>>& spans) {
    const auto first = first_of(spans);
    const auto us = [&](Clock::time_point t) {
        return double(std::chrono::duration_cast<std::chrono::nanoseconds>(t - first).count()) / 1e3;
    };
    Json items = Json::array();
    for (size_t thread = 0; thread < spans.size(); ++thread)
        for (const Span& span : spans[thread])
            items.push_back({{"thread", thread},
                             {"phase", span.phase},
                             {"item", span.item},
                             {"count", span.count},
                             {"begin_us", us(span.begin)},
                             {"end_us", us(span.end)}});
    return items;
}

int schedule(int argc, char** argv) {
    const bench::Options options = bench::parse_options(argc, argv);
    if (options.workloads.size() != 1) {
        std::fprintf(stderr, "quire_schedule: %zu workloads: must be one\n", options.workloads.size());
        return 2;
    }
    const bench::Workload& workload = options.workloads[0];
    const std::unique_ptr<bench::Call> call = bench::make_call(workload);
    std::vector<std::vector<Span>> shortest = run_timed(*call, 0, workload.threads);
    for (int i = 1; i < kRuns; ++i) {
        std::vector<std::vector<Span>> spans = run_timed(*call, i, workload.threads);
        if (length_of(spans) < length_of(shortest)) shortest = std::move(spans);
    }
    Json all = bench::json_head(options.command);
    all["workload"] = workload.name();
    all["threads"] = workload.threads;
    all["items"] = json_of(shortest);
    const std::string path = options.json.empty() ? "-" : options.json;
    if (bench::write_text(path, all.dump(1) + "\n")) return 0;
    std::fprintf(stderr, "quire_schedule: can't write %s\n", path.c_str());
    return 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::schedule(argc, argv); }
