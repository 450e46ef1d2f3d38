// What of a workload can't be run, said before the first one is.
#include <fstream>
#include <set>
#include <thread>

#include "bench/call.h"
#include "bench/limits.h"

namespace bench {
namespace {

// Memory that can be had without pushing out what others use; 0: not known.
double available_bytes() {
    std::ifstream meminfo("/proc/meminfo");
    std::string key, rest;
    double kib = 0;
    while (meminfo >> key >> kib && std::getline(meminfo, rest))
        if (key == "MemAvailable:") return kib * 1024;
    return 0;
}

std::string is_but_must(const char* name, int64_t value, const std::string& rule) {
    return std::string("--") + name + " is " + std::to_string(value) + ": must be " + rule;
}

std::string gib(double bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1 << 30));
    return text;
}

// Sizes that a call is given with, rather than a descriptor, which quire itself checks.
std::string wrong_sizes(const Workload& w) {
    const std::string of_append = "0 with --op append";
    if (w.is_append && w.window) return is_but_must("window", w.window, of_append);
    if (w.is_append && w.ragged) return is_but_must("ragged", 1, of_append);
    if (w.is_append && w.value_view) return is_but_must("value-view", 1, of_append);
    if (w.is_append && w.mask != Mask::none)
        return std::string("--mask is ") + mask_name(w.mask) + ": must be none with --op append";
    if (w.value_view && w.dim_of_values() > w.head_dim)
        return is_but_must("value-dim", w.value_dim,
                           "at most --head-dim, " + std::to_string(w.head_dim) + ", with --value-view 1");
    if (w.kv_len < w.query_len)
        return is_but_must("kv-len", w.kv_len,
                           "at least --query-len, which is " + std::to_string(w.query_len));
    const int processors = int(std::thread::hardware_concurrency());
    if (w.threads > processors)
        return is_but_must("threads", w.threads,
                           "at most " + std::to_string(processors) + ", the processors of this machine");
    return "";
}

// Caches, rows of the operator and masks, and the buffer that DRAM speed is read from.
std::string wrong_memory(const std::vector<Workload>& workloads) {
    std::set<std::string> caches;
    double needed = double(beyond_caches());
    for (const Workload& w : workloads) {
        const double row_bytes = double(w.heads + w.kv_heads) * double(w.stored_dim()) * 8;
        needed += double(w.new_tokens()) * row_bytes + w.mask_bytes();
        const double with_gap = double(w.kv_heads + w.gap) / double(w.kv_heads);
        if (caches.insert(cache_key(w)).second)
            needed += with_gap * double(w.layer_bytes()) * double(w.layers());
    }
    const double available = available_bytes();
    if (available == 0 || needed <= available) return "";
    return "needs " + gib(needed) + " of memory; " + gib(available) + " are available";
}

}  // namespace

std::string why_impossible(const std::vector<Workload>& workloads) {
    for (const Workload& workload : workloads) {
        std::string why = wrong_sizes(workload);
        if (why.empty()) why = why_no_plan(workload);
        if (!why.empty()) return why;
    }
    return wrong_memory(workloads);
}

}  // namespace bench
