// quire_bench [--benchmark_filter=REGEX] [--json FILE] [Google Benchmark's other options]
#include <cstdio>
#include <cstring>

#include "bench/report.h"

namespace {

// Takes "--json FILE" or "--json=FILE" out of argv; empty where it is not there.
std::string take_json_option(int* argc, char** argv) {
    std::string path;
    int kept = 1;
    for (int i = 1; i < *argc; ++i) {
        if (std::strncmp(argv[i], "--json=", 7) == 0) {
            path = argv[i] + 7;
        } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < *argc) {
            path = argv[++i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    return path;
}

void print_limits(const char* when) {
    for (int threads : bench::thread_counts()) {
        const bench::Limits limits = bench::limits_of(threads);
        std::fprintf(stderr, "limits %s, %d thread%s: DRAM read %.1f GB/s, float32 FMA %.1f GFLOP/s\n", when,
                     threads, threads == 1 ? "" : "s", limits.read_bytes_per_s / 1e9,
                     limits.fma_flops_per_s / 1e9);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string json = take_json_option(&argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    bench::register_decode();
    bench::register_prefill();
    bench::register_append();

    const char* target = quire_target_name(bench::context_of(1));
    std::fprintf(stderr, "quire %s, target %s, %s\n", quire_version(), target, bench::machine_name().c_str());
    print_limits("at the beginning");
    benchmark::RunSpecifiedBenchmarks();
    print_limits("over the whole run");
    if (!json.empty() && !bench::write_json(json)) {
        std::fprintf(stderr, "quire_bench: can't write %s\n", json.c_str());
        return 1;
    }
    return 0;
}
