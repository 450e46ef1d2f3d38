#include "bench/workload.h"

#include <algorithm>
#include <thread>

#include "bench/limits.h"

namespace bench {
namespace {

struct TypeName {
    quire_type type;
    const char* name;
};
constexpr TypeName kTypes[] = {
    {QUIRE_F32, "f32"},          {QUIRE_F16, "f16"},   {QUIRE_BF16, "bf16"},     {QUIRE_INT8, "int8"},
    {QUIRE_INT4, "int4"},        {QUIRE_Q8_0, "q8_0"}, {QUIRE_Q4_0, "q4_0"},     {QUIRE_Q4_1, "q4_1"},
    {QUIRE_Q5_0, "q5_0"},        {QUIRE_Q5_1, "q5_1"}, {QUIRE_IQ4_NL, "iq4_nl"}, {QUIRE_INT8_B16, "int8_b16"},
    {QUIRE_INT4_B16, "int4_b16"}};

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

const char* mask_name(Mask mask) {
    switch (mask) {
        case Mask::alibi: return "alibi";
        case Mask::all: return "all";
        case Mask::head: return "head";
        default: return "none";
    }
}

Workload::Sequence Workload::sequence(int64_t b) const {
    if (!ragged) return {query_len, kv_len};
    if (b % 4 == 3) return {1, kv_len};
    // The shortest, the longest, the second shortest, the second longest, ...
    const int64_t count = batch - batch / 4, i = b - b / 4;
    const int64_t rank = i % 2 == 0 ? i / 2 : count - 1 - i / 2;
    const int64_t queries = 1 + (query_len - 1) * rank / std::max<int64_t>(count - 1, 1);
    return {queries, kv_len - query_len + queries};
}

int64_t Workload::new_tokens() const {
    if (!ragged) return batch * query_len;
    int64_t tokens = 0;
    for (int64_t b = 0; b < batch; ++b) tokens += sequence(b).queries;
    return tokens;
}

int64_t Workload::pages() const { return page_size ? (kv_len + page_size - 1) / page_size : 1; }

int64_t Workload::row_bytes(int64_t dim) const {
    if (in_blocks()) return quire_block_bytes(cache, int32_t(dim)) / kBlockTokens;
    return quire_bytes_of(cache.type, dim) + scales_of(dim) * (cache.scale_type == QUIRE_F32 ? 4 : 2);
}

int64_t Workload::position_bytes() const {
    return row_bytes(head_dim) + (value_view ? 0 : row_bytes(dim_of_values()));
}

int64_t Workload::keys_read() const {
    int64_t keys = 0;
    for (int64_t b = 0; b < batch; ++b) {
        const Sequence s = sequence(b);
        keys += window ? std::min(s.keys, s.queries - 1 + window) : s.keys;
    }
    return keys;
}

double Workload::cache_bytes() const {
    const int64_t positions = is_append ? new_tokens() : keys_read();
    return double(positions) * double(kv_heads * position_bytes());
}

// The queries of a sequence are its last positions: they see T - S + 1 keys, one more each, and T in the end.
double Workload::flops() const {
    if (is_append) return 0;
    double pairs = 0;
    for (int64_t b = 0; b < batch; ++b) {
        const Sequence s = sequence(b);
        const int64_t first = s.keys - s.queries + 1;
        // So many of the queries see fewer keys than the window has.
        const int64_t growing =
            window ? std::min(s.queries, std::max<int64_t>(window - first, 0)) : s.queries;
        pairs += double(growing) * (double(first) + double(growing - 1) / 2) +
                 double(s.queries - growing) * double(window);
    }
    return 2 * double(heads) * double(head_dim + dim_of_values()) * pairs;
}

double Workload::mask_bytes() const {
    if (!has_mask()) return 0;
    double columns = 0;
    for (int64_t b = 0; b < batch; ++b) columns += double(sequence(b).keys);
    const double rows = double(new_tokens()) * double(mask == Mask::head ? heads : 1);
    return rows * columns * double(quire_bytes_of(mask_type, 1));
}

int64_t Workload::layer_bytes() const {
    const int64_t slots = page_size ? pages() * page_size : kv_len;
    return batch * slots * kv_heads * planes() * row_bytes(stored_dim());
}

int64_t Workload::layers() const { return is_cold() ? int64_t(beyond_caches()) / layer_bytes() + 1 : 1; }

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
