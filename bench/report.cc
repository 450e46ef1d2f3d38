#include "bench/report.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <thread>

namespace bench {
namespace {

std::map<std::string, Result>& results() {
    static std::map<std::string, Result> by_name;
    return by_name;
}

LimitSamples& samples_of(int threads) {
    static std::map<int, LimitSamples> samples;
    return samples[threads];
}

void write_limits(std::FILE* file) {
    const char* comma = "";
    for (int threads : thread_counts()) {
        const Limits limits = limits_of(threads);
        std::fprintf(file, "%s\"t%d\": {\"dram_read_gb_per_s\": %.1f, \"fma_gflop_per_s\": %.1f}", comma,
                     threads, limits.read_bytes_per_s / 1e9, limits.fma_flops_per_s / 1e9);
        comma = ", ";
    }
}

void write_result(std::FILE* file, const Result& r) {
    const Workload& w = r.workload;
    const std::string cache = w.cache->name.substr(0, w.cache->name.find('_'));
    std::fprintf(file, "{\"workload\": \"%s\", \"batch\": %d, \"query_len\": %d, \"kv_len\": %d, ",
                 w.name.c_str(), int(w.batch), int(w.query_len), int(w.kv_len));
    std::fprintf(file, "\"heads\": %d, \"kv_heads\": %d, \"head_dim\": %d, ", int(H), int(Hk), int(D));
    std::fprintf(file, "\"cache\": \"%s\", \"group\": %d, \"layout\": 3, \"page_size\": %d, ", cache.c_str(),
                 w.cache->format.quant_group, int(P));
    std::fprintf(file, "\"threads\": %d, \"target\": \"%s\", \"precision\": \"highest\", ", w.threads,
                 r.target.c_str());
    std::fprintf(file, "\"time_ms\": %.4f, \"cache_gb_per_s\": %.3f, \"gflop_per_s\": %.2f, ", r.time_ms,
                 r.cache_gb_per_s, r.gflop_per_s);
    std::fprintf(file, "\"dram_share\": %.4f, \"peak_share\": %.4f, \"roofline_share\": %.4f}", r.dram_share,
                 r.peak_share, r.roofline_share);
}

}  // namespace

void report(const Result& result) { results()[result.workload.name] = result; }

void report_limits(int threads, const Limits& sample) { samples_of(threads).add(sample); }

Limits limits_of(int threads) {
    LimitSamples& samples = samples_of(threads);
    if (samples.empty()) {
        for (int i = 0; i < 9; ++i) samples.add(sample_limits(threads));
    }
    return samples.median();
}

std::string machine_name() {
    std::ifstream cpuinfo("/proc/cpuinfo");
    std::string line, name = "unknown processor";
    while (std::getline(cpuinfo, line)) {
        if (line.rfind("model name", 0) == 0) {
            name = line.substr(line.find(':') + 2);
            break;
        }
    }
    return name + ", " + std::to_string(std::thread::hardware_concurrency()) + " processors";
}

bool write_json(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) return false;
    std::fprintf(file, "{\"machine\": \"%s\",\n \"limits\": {", machine_name().c_str());
    write_limits(file);
    std::fprintf(file, "},\n \"results\": [");
    const char* comma = "\n  ";
    for (const auto& [name, result] : results()) {
        std::fprintf(file, "%s", comma);
        write_result(file, result);
        comma = ",\n  ";
    }
    std::fprintf(file, "\n ]}\n");
    return std::fclose(file) == 0;
}

}  // namespace bench
