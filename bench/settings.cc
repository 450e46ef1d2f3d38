#include "bench/settings.h"

#include <charconv>
#include <set>
#include <stdexcept>

namespace bench {
namespace {

constexpr int64_t kMaxLength = int64_t(1) << 30;

// "4096", "4k", "1m"; -1 where it is no such number, or over 2^30.
int64_t number_of(const std::string& text) {
    int64_t value = -1;
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || value < 0 || value > kMaxLength) return -1;
    const std::string unit(stopped, end);
    if (unit == "k") value <<= 10;
    if (unit == "m") value <<= 20;
    const bool known = unit.empty() || unit == "k" || unit == "m";
    return known && value <= kMaxLength ? value : -1;
}

template <class T>
std::string set_number(T* field, const std::string& text, int64_t low, int64_t high) {
    const int64_t value = number_of(text);
    if (value < low || value > high)
        return std::to_string(low) + " to " + std::to_string(high) + " (4k is 4096)";
    *field = T(value);
    return "";
}

template <int64_t Workload::*field>
std::string set_length(Workload* w, const std::string& text) {
    return set_number(&(w->*field), text, 1, kMaxLength);
}

std::string set_type(quire_type* field, const std::string& text, quire_type last) {
    const quire_type type = type_of(text);
    if (type != QUIRE_NONE && type <= last) return *field = type, "";
    std::string names;
    for (int i = QUIRE_F32; i <= int(last); ++i)
        if (type_of(type_name(quire_type(i))) == quire_type(i))
            names += std::string(names.empty() ? "" : ", ") + type_name(quire_type(i));
    return "one of " + names;
}

// From a cache without scales: those of the usual workload.
std::string set_cache(Workload* w, const std::string& text) {
    const std::string must = set_type(&w->cache.type, text, QUIRE_INT4_B16);
    if (w->has_groups() && w->cache.quant_group == 0) {
        w->cache.quant_group = Workload().cache.quant_group;
        w->cache.scale_type = Workload().cache.scale_type;
    }
    return must;
}

std::string set_op(Workload* w, const std::string& text) {
    if (text != "attention" && text != "append") return "attention or append";
    w->is_append = text == "append";
    return "";
}

std::string set_precision(Workload* w, const std::string& text) {
    for (quire_precision p : {QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM})
        if (text == precision_name(p)) return w->precision = p, "";
    return "highest, high or medium";
}

std::string set_mask(Workload* w, const std::string& text) {
    for (Mask mask : {Mask::none, Mask::alibi, Mask::all, Mask::head})
        if (text == mask_name(mask)) return w->mask = mask, "";
    return "none, alibi, all or head";
}

template <bool Workload::*field>
std::string set_flag(Workload* w, const std::string& text) {
    return set_number(&(w->*field), text, 0, 1);
}

const std::vector<Setting> kSettings = {
    {"op", "attention, append", set_op},
    {"heads", "query heads", set_length<&Workload::heads>},
    {"kv-heads", "key/value heads; divide the query heads", set_length<&Workload::kv_heads>},
    {"head-dim", "size of a head", set_length<&Workload::head_dim>},
    {"value-dim", "size of a value, 0: --head-dim",
     [](Workload* w, const std::string& text) { return set_number(&w->value_dim, text, 0, 1024); }},
    {"value-view", "1: a value is the first --value-dim elements of its key, as in MLA",
     set_flag<&Workload::value_view>},
    {"kv-len", "tokens in the cache of each sequence, new ones included", set_length<&Workload::kv_len>},
    {"query-len", "new tokens of each sequence", set_length<&Workload::query_len>},
    {"batch", "sequences", set_length<&Workload::batch>},
    {"ragged", "1: every fourth sequence has one new token, the others from 1 to --query-len",
     set_flag<&Workload::ragged>},
    {"window", "keys that a query sees, its own included; 0: all",
     [](Workload* w, const std::string& text) { return set_number(&w->window, text, 0, kMaxLength); }},
    {"mask", "none; alibi; all, head: numbers added to the scores, the same for all heads or not", set_mask},
    {"mask-type", "of those numbers: f32 or f16",
     [](Workload* w, const std::string& text) { return set_type(&w->mask_type, text, QUIRE_F16); }},
    {"cache",
     "f32, f16, bf16, int8, int4, int8_b16, int4_b16, or ggml's q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl",
     set_cache},
    {"group", "values that share a scale (int8, int4, int8_b16, int4_b16)",
     [](Workload* w, const std::string& text) { return set_number(&w->cache.quant_group, text, 1, 1024); }},
    {"scale-type", "f32 or f16",
     [](Workload* w, const std::string& text) { return set_type(&w->cache.scale_type, text, QUIRE_F16); }},
    {"type", "of query and output, or of the new rows: f32, f16, bf16",
     [](Workload* w, const std::string& text) { return set_type(&w->type, text, QUIRE_BF16); }},
    {"layout", "PMX's cache_layout, 0 to 3; 4: pages of all heads, keys before values",
     [](Workload* w, const std::string& text) { return set_number(&w->layout, text, 0, kWholePages); }},
    {"gap", "rows left free behind the heads of a token, layouts 0 to 2",
     [](Workload* w, const std::string& text) { return set_number(&w->gap, text, 0, 8); }},
    {"page-size", "tokens of a page, 0: none",
     [](Workload* w, const std::string& text) { return set_number(&w->page_size, text, 0, kMaxLength); }},
    {"threads", "of quire's own pool",
     [](Workload* w, const std::string& text) { return set_number(&w->threads, text, 1, 1024); }},
    {"precision", "highest, high, medium", set_precision},
    {"target", "at most this one of quire's targets: avx2",
     [](Workload* w, const std::string& text) { return w->target = text, std::string(); }},
    {"warm", "1: decode takes the same layer every time, which a cache may hold", set_flag<&Workload::warm>},
};

// Range "a..b" doubles and takes b last; "a..b+s" adds s.
std::vector<std::string> range_of(const std::string& text, size_t dots) {
    const size_t plus = text.find('+', dots);
    const int64_t from = number_of(text.substr(0, dots));
    const int64_t to = number_of(text.substr(dots + 2, plus == std::string::npos ? plus : plus - dots - 2));
    const int64_t step = plus == std::string::npos ? 0 : number_of(text.substr(plus + 1));
    if (from < 1 || to < from || step < 0 || (plus != std::string::npos && step == 0))
        throw std::invalid_argument("\"" + text +
                                    "\": must be FROM..TO (doubled) or FROM..TO+STEP, numbers as 4096 or 4k");
    std::vector<std::string> values;
    for (int64_t at = from; at <= to; at = step ? at + step : at * 2) values.push_back(std::to_string(at));
    if (step == 0 && values.back() != std::to_string(to)) values.push_back(std::to_string(to));
    return values;
}

}  // namespace

const std::vector<Setting>& settings() { return kSettings; }

Sweep make_sweep(const Setting& setting, const std::string& text) {
    Sweep sweep{&setting, {}};
    for (size_t at = 0; at <= text.size();) {
        const size_t comma = std::min(text.find(',', at), text.size());
        const std::string part = text.substr(at, comma - at);
        const size_t dots = part.find("..");
        if (dots == std::string::npos)
            sweep.values.push_back(part);
        else
            for (const std::string& value : range_of(part, dots)) sweep.values.push_back(value);
        at = comma + 1;
    }
    Workload tried;
    for (const std::string& value : sweep.values) {
        const std::string must = setting.set(&tried, value);
        if (!must.empty())
            throw std::invalid_argument(std::string("--") + setting.name + " is \"" + value + "\": must be " +
                                        must);
    }
    return sweep;
}

Sweep parse_sweep(const std::string& text) {
    const size_t equals = text.find('=');
    std::string names;
    for (const Setting& setting : settings()) {
        if (equals != std::string::npos && text.substr(0, equals) == setting.name)
            return make_sweep(setting, text.substr(equals + 1));
        names += std::string(names.empty() ? "" : ", ") + setting.name;
    }
    throw std::invalid_argument("--sweep is \"" + text + "\": must be NAME=VALUES, NAME one of " + names);
}

std::vector<Workload> combined(const std::vector<Workload>& base, const std::vector<Sweep>& sweeps) {
    std::vector<Workload> all = base;
    for (const Sweep& sweep : sweeps) {
        std::vector<Workload> next;
        for (const Workload& workload : all)
            for (const std::string& value : sweep.values) {
                next.push_back(workload);
                sweep.setting->set(&next.back(), value);
            }
        all = std::move(next);
    }
    std::set<std::string> seen;
    std::vector<Workload> distinct;
    for (const Workload& workload : all)
        if (seen.insert(workload.name()).second) distinct.push_back(workload);
    return distinct;
}

}  // namespace bench
