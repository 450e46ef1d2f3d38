// What the PMX operators share: attributes of the same names, and the result arrays of attention.
#pragma once
#include "python/src/output.h"
#include "python/src/scalar.h"
#include "python/src/tensor.h"

namespace quire_python {

// What the cache may be, so that a message speaks of its dtype; other quant_bit are left to the library.
inline TypeSet cache_types(int32_t quant_bit) {
    if (quant_bit == 0) return kHalfOrFloat;
    if (quant_bit == 8) return bit(QUIRE_INT8);
    if (quant_bit == 4) return bit(QUIRE_INT4);
    return kRows;
}

// Attributes of attention as they came, quire's extensions among them.
struct AttentionAttributes {
    nb::handle num_heads, head_dim, is_causal, is_alibi, num_kv_heads;
    nb::handle softmax_scale, window_left, window_right, logits_soft_cap, precision;

    template <typename Desc>
    void set(Desc* desc) const {
        desc->num_heads = to_int32(num_heads, "num_heads");
        desc->head_dim = to_int32(head_dim, "head_dim");
        desc->is_causal = to_bool(is_causal, "is_causal");
        desc->is_alibi = to_bool(is_alibi, "is_alibi");
        desc->num_kv_heads = to_int32(num_kv_heads, "num_kv_heads");
        desc->softmax_scale = to_softmax_scale(softmax_scale, "softmax_scale");
        desc->window_left = to_int32(window_left, "window_left");
        desc->window_right = to_int32(window_right, "window_right");
        desc->has_window = desc->window_left >= 0 || desc->window_right >= 0;
        desc->logits_soft_cap = to_float(logits_soft_cap, "logits_soft_cap");
        desc->precision = to_precision(precision);
    }
};

// Attributes of the cache as they came.
struct CacheAttributes {
    nb::handle num_layer, layer_idx, quant_bit, quant_group, cache_layout;

    template <typename Desc>
    void set(Desc* desc) const {
        desc->num_layer = to_int32(num_layer, "num_layer");
        desc->layer_idx = to_int32(layer_idx, "layer_idx");
        desc->quant_bit = to_int32(quant_bit, "quant_bit");
        desc->quant_group = to_int32(quant_group, "quant_group");
        desc->cache_layout = to_int32(cache_layout, "cache_layout");
    }
};

// attn_output, of the query's type and shape, and lse, float32 without the last dimension, where it was asked
// for.
class AttentionResults {
public:
    AttentionResults(const Tensor& query, nb::handle return_lse)
        : with_lse_(to_bool(return_lse, "return_lse")),
          output_(query.rank() == 3
                      ? new_array(query.type(), {query.shape(0), query.shape(1), query.shape(2)})
                      : new_array(query.type(),
                                  {query.shape(0), query.shape(1), query.shape(2), query.shape(3)})),
          lse_(!with_lse_          ? nb::none()
               : query.rank() == 3 ? new_array(QUIRE_F32, {query.shape(0), query.shape(1)})
                                   : new_array(QUIRE_F32, {query.shape(0), query.shape(1), query.shape(2)})),
          output_tensor_(output_, in_place("attn_output", kHalfOrFloat)),
          lse_tensor_(lse_, optional_in_place("lse", bit(QUIRE_F32))) {}

    template <typename Args>
    void give_to(Args* args) const {
        args->attn_output = output_tensor_;
        args->lse = lse_tensor_;
    }
    // What the Python function returns.
    nb::object get() const { return with_lse_ ? nb::object(nb::make_tuple(output_, lse_)) : output_; }

private:
    bool with_lse_;
    nb::object output_, lse_;
    Tensor output_tensor_, lse_tensor_;
};

}  // namespace quire_python
