#include "bench/workload.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "bench/call.h"
#include "bench/limits.h"

namespace bench {
namespace {

struct TypeName {
    quire_type type;
    const char* name;
};
constexpr TypeName kTypes[] = {{QUIRE_F32, "f32"},   {QUIRE_F16, "f16"},      {QUIRE_BF16, "bf16"},
                               {QUIRE_INT8, "int8"}, {QUIRE_INT4, "int4"},    {QUIRE_Q8_0, "q8_0"},
                               {QUIRE_Q4_0, "q4_0"}, {QUIRE_Q4_1, "q4_1"},    {QUIRE_Q5_0, "q5_0"},
                               {QUIRE_Q5_1, "q5_1"}, {QUIRE_IQ4_NL, "iq4_nl"}};

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
    if (w.kv_len < w.query_len)
        return is_but_must("kv-len", w.kv_len,
                           "at least --query-len, which is " + std::to_string(w.query_len));
    const int processors = int(std::thread::hardware_concurrency());
    if (w.threads > processors)
        return is_but_must("threads", w.threads,
                           "at most " + std::to_string(processors) + ", the processors of this machine");
    return "";
}

std::string wrong_memory(const Workload& w) {
    // Rows of the operator beside the cache, and the buffer that DRAM speed is read from.
    const double rows =
        double(w.batch) * double(w.query_len) * double(w.heads + w.kv_heads) * double(w.head_dim) * 8;
    const double needed = double(w.layer_bytes()) * double(w.layers()) + rows + double(beyond_caches());
    const double available = available_bytes();
    if (available == 0 || needed <= available) return "";
    return "needs " + gib(needed) + " of memory; " + gib(available) + " are available";
}

}  // namespace

const char* type_name(quire_type type) {
    for (const TypeName& row : kTypes)
        if (row.type == type) return row.name;
    return "none";
}

quire_type type_of(const std::string& name) {
    for (const TypeName& row : kTypes)
        if (name == row.name) return row.type;
    return QUIRE_NONE;
}

std::string precision_name(quire_precision precision) {
    switch (precision) {
        case QUIRE_PRECISION_MEDIUM: return "medium";
        case QUIRE_PRECISION_HIGH: return "high";
        default: return "highest";
    }
}

std::string Workload::cache_name() const {
    std::string name = type_name(cache.type);
    if (is_quantised()) name += "_g" + std::to_string(cache.quant_group);
    if (is_quantised() && cache.scale_type == QUIRE_F32) name += "_f32";
    return name;
}

// What is not as in the named workloads is spelled behind the lengths.
std::string Workload::name() const {
    const Workload usual;
    const auto number = [](int64_t n) { return std::to_string(n); };
    std::string text = is_append ? "append/" : is_decode() ? "decode/" : "prefill/";
    text += cache_name() + "/";
    if (batch != 1) text += number(batch) + "x";
    if (is_decode())
        text += "kv" + number(kv_len);
    else if (is_append)
        text += number(query_len) + (kv_len == usual.kv_len ? "" : "of" + number(kv_len));
    else if (kv_len == query_len)
        text += number(query_len) + "x" + number(kv_len);
    else
        text += number(query_len) + "on" + number(kv_len - query_len);
    if (heads != usual.heads || kv_heads != usual.kv_heads || head_dim != usual.head_dim)
        text += "/h" + number(heads) + "-" + number(kv_heads) + "-" + number(head_dim);
    if (layout != usual.layout) text += "/l" + number(layout);
    if (page_size != usual.page_size) text += "/p" + number(page_size);
    if (type != usual.type) text += std::string("/") + type_name(type);
    if (precision != usual.precision) text += "/" + precision_name(precision);
    text += "/t" + number(threads);
    return is_decode() && warm ? text + "/warm" : text;
}

int64_t Workload::row_bytes() const {
    const int64_t scale_bytes = cache.scale_type == QUIRE_F32 ? 4 : 2;
    return quire_bytes_of(cache.type, head_dim) + scales_of_row() * scale_bytes;
}

double Workload::cache_bytes() const {
    return double(batch) * double(is_append ? query_len : kv_len) * 2 * double(kv_heads * row_bytes());
}

double Workload::flops() const {
    if (is_append) return 0;
    const double s = double(query_len), t = double(kv_len);
    return 4.0 * double(heads * head_dim * batch) * (s * (t - s) + s * (s + 1) / 2);
}

int64_t Workload::layer_bytes() const {
    const int64_t slots = page_size ? (kv_len + page_size - 1) / page_size * page_size : kv_len;
    return batch * slots * 2 * kv_heads * row_bytes();
}

int64_t Workload::layers() const { return is_cold() ? int64_t(beyond_caches()) / layer_bytes() + 1 : 1; }

std::string why_impossible(const Workload& workload) {
    std::string why = wrong_sizes(workload);
    if (why.empty()) why = why_no_plan(workload);
    if (why.empty()) why = wrong_memory(workload);
    return why;
}

std::vector<Workload> named_workloads() {
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
    for (quire_type type : {QUIRE_INT8, QUIRE_INT4})
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

const std::vector<int>& thread_counts() {
    static const std::vector<int> counts = [] {
        std::vector<int> c = {1};
        const int all = int(std::thread::hardware_concurrency());
        if (all >= 2) c.push_back(2);
        if (all > 2) c.push_back(all);
        return c;
    }();
    return counts;
}

}  // namespace bench
