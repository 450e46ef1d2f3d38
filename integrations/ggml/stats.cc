#include "stats.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

#include "types.h"

namespace quire_ggml {
namespace {

struct Total {
    int64_t calls = 0, tokens = 0, nanoseconds = 0;
    double bytes = 0, flops = 0;
};

struct Totals {
    std::mutex mutex;
    std::map<std::string, Total> runs;
    std::map<std::string, int64_t> originals;  // by reason
};
Totals& totals() {
    static Totals& made = *new Totals;
    return made;
}

// Only of what was computed: nothing is said in the many processes that have this library and no ggml.
struct AtExit {
    ~AtExit() {
        if (!is_verbose()) return;
        Totals& all = totals();
        std::lock_guard<std::mutex> lock(all.mutex);
        for (const auto& [name, t] : all.runs) {
            const double seconds = double(t.nanoseconds) / 1e9;
            say("%lld calls by quire: %s, %lld tokens, %.1f ms, %.1f us a call, %.1f GB/s of cache and "
                "activations, %.1f GFLOP/s",
                (long long)t.calls, name.c_str(), (long long)t.tokens, seconds * 1e3,
                seconds * 1e6 / double(t.calls), t.bytes / seconds / 1e9, t.flops / seconds / 1e9);
        }
        for (const auto& [reason, calls] : all.originals)
            say("%lld calls by ggml: %s", (long long)calls, reason.c_str());
    }
} at_exit;

std::string name_of(const Problem& p) {
    return std::string("K ") + type_info(p.key_type)->name + ", V " + type_info(p.value_type)->name + ", H " +
           std::to_string(p.heads) + ", Hk " + std::to_string(p.kv_heads) + ", D " +
           std::to_string(p.head_dim) +
           (p.value_head_dim == p.head_dim ? "" : ", Dv " + std::to_string(p.value_head_dim)) +
           (p.tokens == 1 ? ", one token" : ", several tokens");
}

}  // namespace

bool is_verbose() {
    static const bool verbose = [] {
        const char* value = std::getenv("QUIRE_VERBOSE");
        return value != nullptr && (*value == '1' || *value == '2');
    }();
    return verbose;
}

int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

void count_run(const Problem& p, const quire_run* run, int64_t nanoseconds) {
    quire_prediction prediction = {};
    prediction.struct_size = sizeof prediction;
    quire_run_predict(run, nullptr, &prediction);
    Totals& all = totals();
    std::lock_guard<std::mutex> lock(all.mutex);
    Total& total = all.runs[name_of(p)];
    ++total.calls;
    total.tokens += p.tokens * p.streams;
    total.nanoseconds += nanoseconds;
    total.bytes += prediction.bytes;
    total.flops += prediction.flops;
}

void count_original(const Reason& reason) {
    Totals& all = totals();
    std::lock_guard<std::mutex> lock(all.mutex);
    ++all.originals[reason.text];
}

void say(const char* format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "quire-ggml: %s\n", line);
}

}  // namespace quire_ggml
