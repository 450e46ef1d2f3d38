#include "bench/call.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>

namespace bench {

void Call::run(int64_t i) { check(call(i)); }

quire_run* Call::prepared(int64_t i) {
    quire_run* run = nullptr;
    check(prepare(i, &run));
    return run;
}

quire_prediction Call::predict(double bytes_per_s, double flops_per_s) {
    quire_limits limits{};
    limits.struct_size = sizeof limits;
    limits.bytes_per_second = bytes_per_s;
    limits.flops_per_second = flops_per_s;
    quire_prediction prediction{};
    prediction.struct_size = sizeof prediction;
    quire_run* run = prepared(0);
    check(quire_run_predict(run, &limits, &prediction));
    quire_run_release(run);
    return prediction;
}

// The plan's note is "precision: keys high for 4 8 more query rows, values highest; all else runs as
// highest": up to 8 rows each number has kernels of its own.
quire_precision Call::runs_as(int64_t query_rows) const {
    const std::string rows = query_rows > 8 ? "more" : std::to_string(query_rows);
    std::istringstream words(quire_plan_explain(plan_));
    quire_precision named = QUIRE_PRECISION_HIGHEST, found = named;
    bool in_note = false, listed = false;
    for (std::string word; words >> word;) {
        if (word == "precision:") in_note = true;
        if (!in_note) continue;
        if (word.back() == ';') break;
        if (word == "highest") named = QUIRE_PRECISION_HIGHEST;
        if (word == "high") named = QUIRE_PRECISION_HIGH;
        if (word == "medium") named = QUIRE_PRECISION_MEDIUM;
        if (word == "for" || word == "query") listed = word == "for";
        if (listed && word == rows) found = std::max(found, named);  // in order of precision
    }
    return found;
}

std::unique_ptr<Call> make_call(const Workload& workload) {
    return workload.is_append ? make_append_call(workload) : make_attention_call(workload);
}

std::vector<uint32_t> random_numbers(quire_type type, int64_t count, uint32_t seed) {
    // Which bits are random, and the exponent above them.
    const uint32_t masks[][2] = {
        {0x80ffffff, 0x3f000000}, {0x83ff83ff, 0x38003800}, {0x807f807f, 0x3f003f00}};
    const uint32_t* mask = masks[type - QUIRE_F32];
    std::vector<uint32_t> words(size_t(quire_bytes_of(type, count) + 3) / 4);
    std::mt19937 random(seed);
    for (uint32_t& word : words) word = (uint32_t(random()) & mask[0]) | mask[1];
    return words;
}

std::string why_no_plan(const Workload& workload) {
    if (!context_of(workload.threads, workload.target)) return quire_last_error();
    quire_plan* plan = nullptr;
    const quire_status status =
        workload.is_append ? plan_append(workload, &plan) : plan_attention(workload, &plan);
    quire_plan_destroy(plan);
    return status == QUIRE_OK ? "" : quire_last_error();
}

void check(quire_status status) {
    if (status == QUIRE_OK) return;
    std::fprintf(stderr, "quire_bench: %s\n", quire_last_error());
    std::exit(1);
}

quire_context* context_of(int threads, const std::string& target) {
    static std::map<std::pair<int, std::string>, quire_context*> contexts;
    quire_context*& context = contexts[{threads, target}];
    if (!context) {
        quire_context_options options{};
        options.struct_size = sizeof options;
        options.num_threads = threads;
        options.target = target.empty() ? nullptr : target.c_str();
        if (quire_context_create(&options, &context) != QUIRE_OK) context = nullptr;
    }
    return context;
}

std::string target_of(const Workload& workload) {
    return quire_target_name(context_of(workload.threads, workload.target));
}

}  // namespace bench
