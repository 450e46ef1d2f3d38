#include "bench/model_counts.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/cache.h"
#include "bench/call.h"
#include "bench/steps.h"

namespace bench {
namespace {

using Counts = std::map<uintptr_t, int64_t>;

// Two lengths, of whole blocks of keys: their difference is what a key takes, without what a call does once.
constexpr int64_t kShort = 128, kLong = 384;
// Prefill: rows that share a packing of keys and values, and keys of a tile, of heads up to 128 (src/plan.cc:
// those of larger ones share less, or have shorter tiles).
constexpr int64_t kItemRows = 384, kTile = 128;

Workload of_one_head(Workload w) {
    w.batch = w.threads = 1;
    if (w.is_decode() && w.layout < 3) return w;  // the distance of rows is that of its kv heads
    w.heads /= w.kv_heads;
    w.kv_heads = 1;
    return w;
}

Workload short_decode(const Workload& workload, int64_t keys) {
    Workload w = of_one_head(workload);
    w.window = 0;
    w.warm = true;
    w.kv_len = keys;
    return w;
}

Counts counts_of(const Workload& w) {
    keep_caches_of({w});
    const std::unique_ptr<Call> call = make_call(w);
    call->run(0);  // generates the code
    return count_steps([&] { call->run(0); });
}

void add(std::map<uintptr_t, double>* to, const Counts& counts, double times) {
    for (const auto& [address, count] : counts) (*to)[address] += times * double(count);
}

// So many new tokens on `past` keys. What is counted is kept: longer prompts have the same parts.
const Counts& counts_of_part(const Workload& workload, int64_t tokens, int64_t past) {
    static std::map<std::string, Counts> known;
    Workload w = of_one_head(workload);
    w.query_len = tokens;
    w.kv_len = past + tokens;
    const auto [entry, is_new] = known.try_emplace(w.name());
    if (is_new) entry->second = counts_of(w);
    return entry->second;
}

// Tokens that make one work item, and what is left, which is more than is decoded.
std::vector<int64_t> parts_of(const Workload& w) {
    const int64_t item = std::max(kItemRows / (w.heads / w.kv_heads), kMostVerified + 1);
    std::vector<int64_t> parts;
    for (int64_t left = w.query_len; left > 0; left -= parts.back())
        parts.push_back(left - item > kMostVerified ? item : left);
    return parts;
}

// The parts, each on as many tiles as its past has: the first one makes another difference than those that
// follow. What is not whole tiles counts as a share of one, as parts begin anywhere in theirs.
void add_prefill(const Workload& w, std::map<uintptr_t, double>* counts) {
    const double rows = double(w.query_len * (w.heads / w.kv_heads));
    int64_t past = w.kv_len - w.query_len;
    for (const int64_t tokens : parts_of(w)) {
        const int64_t first = past > kTile ? kTile : 0;
        const double tiles = double(past - first) / double(kTile);
        add(counts, counts_of_part(w, tokens, first), (1 - tiles) / rows);
        if (tiles > 0) add(counts, counts_of_part(w, tokens, first + kTile), tiles / rows);
        past += tokens;
    }
}

}  // namespace

Workload near_of(const Workload& workload) {
    constexpr int64_t kNearBytes = 640 << 10;  // of a second-level cache of 1 MB
    Workload w = of_one_head(workload);
    int64_t keys = 256;
    while (keys < w.kv_len && 2 * keys * w.position_bytes() * w.kv_heads <= kNearBytes) keys *= 2;
    w.kv_len = std::min(w.kv_len, keys);
    w.warm = true;
    return w;
}

double units_of(const Workload& w) {
    return w.is_decode() ? double(w.keys_read() * w.kv_heads) : double(w.new_tokens() * w.heads);
}

const char* unit_words(const Workload& w) { return w.is_decode() ? "a key and kv head" : "a query row"; }

UnitCounts counts_a_unit(const Workload& w) {
    UnitCounts counts;
    if (w.is_append) return {{}, "not of append"};
    if (w.is_decode()) {
        const Workload longer = short_decode(w, kLong);
        const double keys = double((kLong - kShort) * longer.kv_heads);
        add(&counts.of, counts_of(longer), 1 / keys);
        add(&counts.of, counts_of(short_decode(w, kShort)), -1 / keys);
        return counts;
    }
    if (w.ragged || w.window > 0) return {{}, "not of prefill with a window or sequences of all lengths"};
    add_prefill(w, &counts.of);
    return counts;
}

std::string counted_name(const Workload& w) {
    return w.is_decode() ? short_decode(w, kLong).name() : of_one_head(w).name();
}

}  // namespace bench
