// What one benchmark does: an operator and its sizes, in the letters of quire.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "quire/quire.h"

namespace bench {

// What is added to the scores beside the causal mask: ALiBi, or numbers, one matrix for all heads or one a
// head.
enum class Mask { none, alibi, all, head };

// Not of PMX: all heads of a page side by side, keys before values.
constexpr int64_t kWholePages = 4;

// Most new tokens of a sequence that is decoded: more than one where they are drafts to be verified.
constexpr int64_t kMostVerified = 8;

struct Workload {
    bool is_append = false;
    int64_t heads = 32, kv_heads = 8, head_dim = 128;  // H, Hk, D
    int64_t value_dim = 0;                             // Dv; 0: D
    bool value_view = false;                           // MLA: a value is the first Dv elements of its key
    int64_t batch = 1, query_len = 1, kv_len = 32768;  // lengths of each sequence; ragged: see sequence()
    bool ragged = false;
    int64_t window = 0;  // keys that a query sees, its own included; 0: all
    Mask mask = Mask::none;
    quire_type mask_type = QUIRE_F32;
    quire_format cache = {QUIRE_INT8, 32, QUIRE_F16};  // of keys and values
    quire_type type = QUIRE_F32;                       // of query and output, or of new rows
    int64_t layout = 3, page_size = 128;               // PMX's cache_layout, or kWholePages; 0: no pages
    int64_t gap = 0;  // rows left free behind the heads of a token, layouts 0 to 2
    int threads = 1;
    quire_precision precision = QUIRE_PRECISION_HIGHEST;
    std::string target;  // cap, a name of quire_target_name; empty: none
    bool warm = false;   // decode: one layer again and again, which a cache may hold

    bool is_quantised() const { return cache.type == QUIRE_INT8 || cache.type == QUIRE_INT4; }
    bool in_blocks() const { return cache.type == QUIRE_INT8_B16 || cache.type == QUIRE_INT4_B16; }
    bool has_groups() const { return is_quantised() || in_blocks(); }
    bool is_decode() const { return !is_append && query_len <= kMostVerified; }
    bool has_mask() const { return mask == Mask::all || mask == Mask::head; }
    // Successive runs take successive layers, which together exceed every cache of the machine.
    bool is_cold() const { return is_decode() && !warm; }
    int64_t dim_of_values() const { return value_dim ? value_dim : head_dim; }
    // A cache has keys and values in rows of one size, or keys alone.
    int64_t stored_dim() const { return std::max(head_dim, dim_of_values()); }
    int64_t planes() const { return value_view ? 1 : 2; }

    struct Sequence {
        int64_t queries, keys;
    };
    // Ragged: every fourth sequence decodes one token on kv_len keys; the others have from 1 to query_len new
    // tokens, spread evenly, behind a past of kv_len - query_len.
    Sequence sequence(int64_t b) const;
    int64_t new_tokens() const;  // of all sequences
    int64_t pages() const;       // of each sequence; 1 where there are no pages

    std::string cache_name() const;  // "int8_g32"
    std::string name() const;        // "decode/int8_g32/kv32768/t2"
    int64_t scales_of(int64_t dim) const { return is_quantised() ? dim / cache.quant_group : 0; }
    int64_t row_bytes(int64_t dim) const;
    int64_t position_bytes() const;  // key and value of one position and kv head, and their scales
    int64_t keys_read() const;       // of all sequences: what some query sees
    double cache_bytes() const;      // of the keys that are read, and their values; of append: those written
    double flops() const;  // products over the (query, key) pairs that causality and the window leave
    double mask_bytes() const;
    int64_t layer_bytes() const;  // pages included
    int64_t layers() const;
};

constexpr int64_t kBlockTokens = 16;  // of the formats with blocks of tokens

// "f32" ... "int4_b16"; QUIRE_NONE where there is no such type of a cache.
const char* type_name(quire_type type);
quire_type type_of(const std::string& name);
std::string precision_name(quire_precision precision);
const char* mask_name(Mask mask);

// Why they can't be run together ("kv-len is 8: must be ..."); empty where they can. Nothing is run.
std::string why_impossible(const std::vector<Workload>& workloads);

// 1, 2, and all that the machine has.
const std::vector<int>& thread_counts();

}  // namespace bench
