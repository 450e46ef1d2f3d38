// What one benchmark does: an operator and its sizes, in the letters of quire.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "quire/quire.h"

namespace bench {

struct Workload {
    bool is_append = false;
    int64_t heads = 32, kv_heads = 8, head_dim = 128;  // H, Hk, D
    int64_t batch = 1, query_len = 1, kv_len = 32768;  // lengths of each sequence
    quire_format cache = {QUIRE_INT8, 32, QUIRE_F16};  // of keys and values
    quire_type type = QUIRE_F32;                       // of query and output, or of new rows
    int64_t layout = 3, page_size = 128;               // PMX's cache_layout; 0: no pages
    int threads = 1;
    quire_precision precision = QUIRE_PRECISION_HIGHEST;
    bool warm = false;  // decode: one layer again and again, which a cache may hold

    bool is_quantised() const { return cache.type == QUIRE_INT8 || cache.type == QUIRE_INT4; }
    bool is_decode() const { return !is_append && query_len == 1; }
    // Successive runs take successive layers, which together exceed every cache of the machine.
    bool is_cold() const { return is_decode() && !warm; }

    std::string cache_name() const;  // "int8_g32"
    std::string name() const;        // "decode/int8_g32/kv32768/t2"
    int64_t row_bytes() const;       // one key or value of one kv head, and its scales
    int64_t scales_of_row() const { return is_quantised() ? head_dim / cache.quant_group : 0; }
    double cache_bytes() const;   // keys, values and scales of all sequences; of append: those written
    double flops() const;         // products over the (query, key) pairs that a causal mask leaves
    int64_t layer_bytes() const;  // pages included
    int64_t layers() const;
};

// "f32" ... "iq4_nl"; QUIRE_NONE where there is no such type of a cache.
const char* type_name(quire_type type);
quire_type type_of(const std::string& name);
std::string precision_name(quire_precision precision);

// Those with names of their own: decode, prefill and append over all formats of a llama-style model.
std::vector<Workload> named_workloads();

// Why it can't be run ("kv-len is 8: must be ..."); empty where it can. Nothing is run.
std::string why_impossible(const Workload& workload);

// 1, 2, and all that the machine has.
const std::vector<int>& thread_counts();

}  // namespace bench
