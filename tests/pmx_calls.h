// Valid calls of the PMX operators other than dynamic_batching.MultiHeadCacheAttention, which is in
// api_call.h.
#pragma once
#include "tests/api_call.h"

namespace quire::test {

// The four functions of an operator, for a Call that has `desc` and `args`.
#define QUIRE_PMX_CALL(operator_name)                                                                \
    quire_status plan(quire_context* context, quire_plan** plan) const override {                    \
        return quire_##operator_name##_plan(context, &desc, plan);                                   \
    }                                                                                                \
    quire_status run(const quire_plan* plan) override { return quire_##operator_name(plan, &args); } \
    quire_status prepare(const quire_plan* plan, quire_run** run) override {                         \
        return quire_prepare_##operator_name(plan, &args, run);                                      \
    }                                                                                                \
    quire_##operator_name##_desc desc = {};                                                          \
    quire_##operator_name##_args args = {}

// Two sequences, S {1, 3}, T {5, 6}, two rows of keys more; H 4, Hk 2, D 16.
struct PmxDynamicAttentionCall : Call {
    PmxDynamicAttentionCall();
    QUIRE_PMX_CALL(pmx_dynamic_multi_head_attention);
    quire_tensor query, key, value, seqstarts, kvstarts, attn_mask, sinks, attn_output, lse;
};

// The same sequences; Hk 2, D 16, num_repeat 2; layer 1 of 2, quant_bit 8, quant_group 8, cache_layout 0,
// pages of 4.
struct PmxDynamicKeyValueCacheCall : Call {
    PmxDynamicKeyValueCacheCall();
    QUIRE_PMX_CALL(pmx_dynamic_key_value_cache);
    quire_tensor current_key, current_value, seqstarts, kvstarts, cachestarts, start_pos, cache, scale, key,
        value;
};

// B 2 of MaxB 3, S 3, start_pos 4, MaxS 10; H 4, Hk 2, D 16; layer 1 of 2, quant_bit 8, quant_group 8,
// cache_layout 1.
struct PmxCacheAttentionCall : Call {
    PmxCacheAttentionCall();
    QUIRE_PMX_CALL(pmx_multi_head_cache_attention);
    quire_tensor query, current_key, current_value, start_pos, cache, scale, attn_mask, sinks, attn_output,
        lse;
};

// B 2, S 3, T 7; H 4, Hk 2, D 16.
struct PmxAttentionCall : Call {
    PmxAttentionCall();
    QUIRE_PMX_CALL(pmx_multi_head_attention);
    quire_tensor query, key, value, attn_mask, sinks, attn_output, lse;
};

// As PmxCacheAttentionCall; cache_layout 0, num_repeat 2.
struct PmxKeyValueCacheCall : Call {
    PmxKeyValueCacheCall();
    QUIRE_PMX_CALL(pmx_key_value_cache);
    quire_tensor current_key, current_value, start_pos, cache, scale, key, value;
};

#undef QUIRE_PMX_CALL

}  // namespace quire::test
