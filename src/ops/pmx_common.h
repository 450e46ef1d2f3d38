// What the PMX operators share: descriptor fields of the same names, and cache tensors by layout.
#pragma once
#include <cmath>

#include "src/ops/operator.h"

namespace quire {

// Where the dimensions of `cache` and `scale` are; the last is D or D / quant_group. Both shapes for
// messages.
struct PmxLayout {
    int rank;
    int batch;  // -1: rows of all sequences in one dimension
    int token, layer, part, head;
    const char *cache_shape, *scale_shape;
};

// ---- descriptors ----

// Attributes of the operators with a cache.
struct PmxCacheAttributes {
    int32_t num_layer, layer_idx, quant_bit, quant_group, cache_layout;
    quire_type cache_type, scale_type;
};
template <typename Desc>
PmxCacheAttributes pmx_cache_attributes(const Desc& d) {
    return {d.num_layer, d.layer_idx, d.quant_bit, d.quant_group, d.cache_layout, d.cache_type, d.scale_type};
}

enum class PmxDomain { dynamic, fixed };  // dynamic_batching, or one length for all

// `type` is T1. Fills in Hk, D, Dv and the formats of `rows`; page_size is 0.
Status check_pmx_cache(const PmxCacheAttributes& attributes, PmxDomain domain, quire_type type, int Hk,
                       int head_dim, PmxCacheSpec* pmx, CacheSpec* rows);
// cache_mode and page_size, of dynamic_batching.
Status check_pmx_paging(int cache_mode, int page_size, CacheSpec* rows);
// `name` is the descriptor's field for T1.
Status check_pmx_type(const char* name, quire_type type);

// The attributes of attention and quire's extensions of them; keys and values are of `type`.
template <typename Desc>
Status check_pmx_attention(const Desc& d, quire_type type, AttentionSpec* spec) {
    quire_attention_desc a = {};
    a.num_heads = d.num_heads;
    a.num_kv_heads = d.num_kv_heads;
    a.head_dim = d.head_dim;
    a.type = type;
    a.key_format = a.value_format = {type, 0, QUIRE_NONE};
    a.is_causal = d.is_causal;
    a.is_alibi = d.is_alibi;
    a.scale = d.softmax_scale;
    a.has_window = d.has_window;
    a.window_left = d.window_left;
    a.window_right = d.window_right;
    a.logits_soft_cap = d.logits_soft_cap;
    a.precision = d.precision;
    if (!std::isfinite(d.softmax_scale))
        return invalid("softmax_scale is %g: must be finite", double(d.softmax_scale));
    return check_attention_desc(a, spec);
}

// Attention over a cache: the plan's append and attention parts.
Status plan_pmx_cache_attention(AttentionSpec spec, const CacheSpec& rows, quire_plan* plan);
// Storing and reading back: the plan's append and read parts.
Status plan_pmx_key_value_cache(const CacheSpec& rows, quire_type type, int num_repeat, quire_plan* plan);

// ---- arguments ----

// Keys and values of the plan's layer, as the common path takes them.
class PmxCacheViews {
public:
    // `rows` of the plan; checks `cache` and `scale`.
    Status make(const PmxCacheSpec& pmx, const CacheSpec& rows, const quire_tensor* cache,
                const quire_tensor* scale);
    int64_t length(int dimension) const { return key_.shape[dimension]; }
    // [MaxB, MaxS, ...] -> [B, T, ...]
    void narrow(int64_t B, int64_t T);
    CacheTensors tensors() const;

    // Fills in the fields of quire_append_args or quire_attention_args.
    template <typename Args>
    void give_to(Args* args) const {
        const CacheTensors t = tensors();
        args->key = t.key;
        args->value = t.value;
        args->key_scale = t.key_scale;
        args->value_scale = t.value_scale;
    }

private:
    bool quantised_ = false;
    quire_tensor key_ = {}, value_ = {}, key_scale_ = {}, value_scale_ = {};
};

// A tensor of heads, [.., .., heads, D]; nothing is kept of it but that it is right.
Status check_pmx_heads(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                       const Shape& shape);
// NULL, or of the query's type.
Status check_pmx_mask_type(const quire_tensor* attn_mask, quire_type type);

}  // namespace quire
