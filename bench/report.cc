#include "bench/report.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/model.h"

namespace bench {
namespace {

using Json = nlohmann::ordered_json;

struct Results {
    std::map<std::string, Result> by_name;
    std::vector<std::string> order;
};
Results& results() {
    static Results all;
    return all;
}

std::map<int, LimitSamples>& samples() {
    static std::map<int, LimitSamples> by_threads;
    return by_threads;
}

// Four digits: more is noise. What does not apply is null.
Json number(double value) {
    if (!(value > 0)) return nullptr;
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.4g", value);
    return std::strtod(digits, nullptr);
}

std::string date_now() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

Json json_of_limits() {
    Json all = Json::object();
    for (const auto& [threads, sampled] : samples()) {
        const Limits limits = sampled.usual();
        Json& one = all["t" + std::to_string(threads)];
        one["dram_read_gb_per_s"] = number(limits.read_bytes_per_s / 1e9);
        one["memcpy_gb_per_s"] = number(limits.copy_bytes_per_s / 1e9);
        one["fma_gflop_per_s"] = number(limits.fma_flops_per_s / 1e9);
        one["fma_steady_gflop_per_s"] = number(limits.fma_steady_flops_per_s / 1e9);
        one["dot16_gop_per_s"] = number(limits.dot16_flops_per_s / 1e9);
        one["dot8_gop_per_s"] = number(limits.dot8_flops_per_s / 1e9);
        one["bf16_gflop_per_s"] = number(limits.bf16_flops_per_s / 1e9);
        one["clock_ghz"] = number(limits.cycles_per_s / 1e9);
    }
    return all;
}

Json json_of(const Result& r) {
    const Workload& w = r.workload;
    static const char* const bounds[] = {"unknown", "memory", "compute"};
    const std::unique_ptr<Result> model = modelled(r);
    return {{"workload", w.name()},
            {"batch", w.batch},
            {"query_len", w.query_len},
            {"kv_len", w.kv_len},
            {"heads", w.heads},
            {"kv_heads", w.kv_heads},
            {"head_dim", w.head_dim},
            {"value_dim", w.dim_of_values()},
            {"value_view", w.value_view},
            {"ragged", w.ragged},
            {"window", w.window},
            {"mask", mask_name(w.mask)},
            {"mask_type", w.has_mask() ? type_name(w.mask_type) : ""},
            {"cache", type_name(w.cache.type)},
            {"group", w.has_groups() ? w.cache.quant_group : 0},
            {"scale_type", w.has_groups() ? type_name(w.cache.scale_type) : ""},
            {"type", type_name(w.type)},
            {"layout", w.layout},
            {"gap", w.gap},
            {"page_size", w.page_size},
            {"threads", w.threads},
            {"target", r.target},
            {"precision", precision_name(w.precision)},
            {"runs_as", precision_name(r.precision)},
            {"runs", r.runs},
            {"time_ms", number(r.time_ms)},
            {"time_min_ms", number(r.time_min_ms)},
            {"spread", number(r.spread)},
            {"cache_gb_per_s", number(r.cache_gb_per_s)},
            {"gflop_per_s", number(r.gflop_per_s)},
            {"dram_share", number(r.dram_share)},
            {"pages_share", number(r.pages_share)},
            {"peak_share", number(r.peak_share)},
            {"roofline_share", number(r.roofline_share)},
            {"threads_apart", number(r.limits.apart)},
            {"memcpy_share", number(r.memcpy_share)},
            {"bf16_share",
             number(r.limits.bf16_flops_per_s > 0 ? r.gflop_per_s * 1e9 / r.limits.bf16_flops_per_s : 0)},
            {"cycles_per_token_head", number(w.is_decode() ? r.cycles : 0)},
            {"cycles_per_query_row", number(w.is_decode() ? 0 : r.cycles)},
            {"near_cycles", number(r.near_cycles)},
            {"work_cycles", number(r.model ? r.model->cycles : 0)},
            {"memory_cycles", number(r.model ? memory_cycles(r) : 0)},
            {"predicted_ms", number(r.predicted.seconds * 1e3)},
            {"model_ms", number(model ? model->time_ms : 0)},
            {"bound", bounds[r.predicted.bound]},
            {"bytes", r.predicted.bytes},
            {"flops", r.predicted.flops}};
}

Json json_of(const GoalRow& row) {
    const Result* result = row.why_not.empty() ? result_of(row.workload.name()) : nullptr;
    const Judgement j = judge(row, result);
    Json beside = Json::array();
    if (result)
        for (const Result& other : result->beside)
            for (const Workload& wanted : row.beside)
                if (other.workload.name() == wanted.name()) beside.push_back(json_of(other));
    return {{"issue", row.goal->issue},
            {"goal", row.goal->words},
            {"ratio", j.ratio},
            {"at_most", row.goal->ratio->at_most},
            {"workload", row.goal->settings ? Json(row.workload.name()) : Json()},
            {"wanted", number(j.wanted_ratio)},
            {"reached", number(j.reached_ratio)},
            {"verdict", j.verdict},
            {"beside", beside}};
}

std::string csv_of(const Json& value) {
    if (value.is_null()) return "";
    return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void report(const Result& result) {
    const std::string name = result.workload.name();
    const auto [at, is_new] = results().by_name.insert_or_assign(name, result);
    if (is_new) results().order.push_back(name);
}

const Result* result_of(const std::string& name) {
    const auto at = results().by_name.find(name);
    return at == results().by_name.end() ? nullptr : &at->second;
}

void report_limits(int threads, const Limits& sample) { samples()[threads].add(sample); }

Limits limits_of(int threads) {
    LimitSamples& of_threads = samples()[threads];
    if (of_threads.empty())
        for (int i = 0; i < 9; ++i) of_threads.add(sample_limits(threads, {}));
    return of_threads.usual();
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

bool write_text(const std::string& path, const std::string& text) {
    if (path == "-") return bool(std::cout << text << std::flush);
    std::ofstream file(path);
    file << text;
    file.close();
    return bool(file);
}

Json json_head(const std::string& command) {
    return {{"machine", machine_name()},
            {"version", quire_version()},
            {"date", date_now()},
            {"command", command}};
}

bool write_json(const std::string& path, const std::string& command, const std::vector<GoalRow>& goals) {
    Json all = json_head(command);
    all["limits"] = json_of_limits();
    all["results"] = Json::array();
    for (const std::string& name : results().order) all["results"].push_back(json_of(*result_of(name)));
    all["goals"] = Json::array();
    for (const GoalRow& row : goals) all["goals"].push_back(json_of(row));
    return write_text(path, all.dump(1) + "\n");
}

// No field has a comma or a quote in it.
bool write_csv(const std::string& path) {
    std::string text;
    for (const std::string& name : results().order) {
        const Json row = json_of(*result_of(name));
        std::string titles, values;
        for (const auto& [title, value] : row.items()) {
            titles += (titles.empty() ? "" : ",") + title;
            values += (values.empty() ? "" : ",") + csv_of(value);
        }
        text += (text.empty() ? titles + "\n" : "") + values + "\n";
    }
    return write_text(path, text);
}

}  // namespace bench
