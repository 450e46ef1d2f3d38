#include "bench/named.h"

#include <set>

#include "bench/goals.h"

namespace bench {
namespace {

// All formats of a llama-style model over the usual lengths, at `highest`.
std::vector<Workload> of_formats() {
    struct Lengths {
        int64_t batch, query_len, kv_len;
        bool warm;
    };
    constexpr Lengths decode[] = {{1, 1, 32768, false}, {1, 1, 4096, false}, {16, 1, 2048, false}},
                      in_cache[] = {{1, 1, 1024, true}},
                      prefill[] = {{1, 512, 512, false}, {1, 512, 4096 + 512, false}, {1, 2048, 2048, false}},
                      append[] = {{1, 512, 32768, false}};
    std::vector<quire_format> formats = {
        {QUIRE_F32, 0, QUIRE_NONE}, {QUIRE_F16, 0, QUIRE_NONE}, {QUIRE_BF16, 0, QUIRE_NONE}};
    for (quire_type type : {QUIRE_INT8, QUIRE_INT4, QUIRE_INT8_B16, QUIRE_INT4_B16})
        for (int group : {8, 32, 128}) formats.push_back({type, group, QUIRE_F16});
    const size_t appended = formats.size();  // quire_append refuses blocks
    for (quire_type type : {QUIRE_Q8_0, QUIRE_Q4_0, QUIRE_Q4_1, QUIRE_Q5_0, QUIRE_Q5_1, QUIRE_IQ4_NL})
        formats.push_back({type, 0, QUIRE_NONE});

    std::vector<Workload> all;
    const auto add = [&](const Lengths& lengths, const quire_format& format, bool is_append, int threads) {
        Workload w;
        w.is_append = is_append;
        w.batch = lengths.batch, w.query_len = lengths.query_len, w.kv_len = lengths.kv_len;
        w.warm = lengths.warm, w.cache = format, w.threads = threads;
        all.push_back(w);
    };
    const auto add_all = [&](const auto& table, bool is_append, bool one_thread) {
        for (size_t i = 0; i < (is_append ? appended : formats.size()); ++i)
            for (const Lengths& lengths : table)
                for (int threads : one_thread ? std::vector<int>{1} : thread_counts())
                    add(lengths, formats[i], is_append, threads);
    };
    add_all(decode, false, false);
    add_all(in_cache, false, true);
    add_all(prefill, false, false);
    add_all(append, true, false);
    return all;
}

}  // namespace

std::vector<Workload> named_workloads() {
    std::vector<Workload> all;
    std::set<std::string> names;
    const auto add = [&](const Workload& workload) {
        if (names.insert(workload.name()).second) all.push_back(workload);
    };
    for (const Workload& workload : of_formats()) add(workload);
    for (const GoalRow& row : goal_rows("all", {}))
        if (row.why_not.empty()) add(row.workload);
    return all;
}

}  // namespace bench
