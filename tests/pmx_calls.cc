#include "tests/pmx_calls.h"

namespace quire::test {
namespace {

template <typename Desc>
void set_heads(Desc* desc) {
    desc->num_heads = 4;
    desc->num_kv_heads = 2;
    desc->head_dim = 16;
    desc->is_causal = 1;
}

template <typename Desc>
void set_cache(Desc* desc) {
    desc->num_layer = 2;
    desc->layer_idx = 1;
    desc->quant_bit = 8;
}

}  // namespace

PmxDynamicAttentionCall::PmxDynamicAttentionCall() {
    quire_pmx_dynamic_multi_head_attention_desc_init(&desc);
    set_heads(&desc);
    query = buffers.numbers(QUIRE_F32, {4, 4, 16});
    key = buffers.numbers(QUIRE_F32, {13, 2, 16});
    value = buffers.numbers(QUIRE_F32, {13, 2, 16});
    seqstarts = buffers.indices({3}, {0, 1, 4});
    kvstarts = buffers.indices({3}, {0, 5, 11});
    attn_mask = buffers.numbers(QUIRE_F32, {4, 4, 12});
    sinks = buffers.numbers(QUIRE_F32, {4});
    attn_output = buffers.output(QUIRE_F32, {4, 4, 16});
    lse = buffers.output(QUIRE_F32, {4, 4});
    args = {sizeof args, &query, &key,       &value, &seqstarts,   &kvstarts, 1,
            3,           6,      &attn_mask, &sinks, &attn_output, &lse};
}

PmxDynamicKeyValueCacheCall::PmxDynamicKeyValueCacheCall() {
    quire_pmx_dynamic_key_value_cache_desc_init(&desc);
    set_cache(&desc);
    desc.num_kv_heads = 2;
    desc.head_dim = 16;
    desc.num_repeat = 2;
    desc.cache_mode = 1;
    desc.page_size = 4;
    current_key = buffers.numbers(QUIRE_F32, {4, 2, 16});
    current_value = buffers.numbers(QUIRE_F32, {4, 2, 16});
    seqstarts = buffers.indices({3}, {0, 1, 4});
    kvstarts = buffers.indices({3}, {0, 5, 11});
    cachestarts = buffers.indices({2, 3}, {0, 4, INT64_MAX, 10, 14, -1});
    start_pos = buffers.indices({2}, {4, 3});
    cache = buffers.numbers(QUIRE_INT8, {20, 2, 2, 2, 16});
    scale = buffers.numbers(QUIRE_F32, {20, 2, 2, 2, 2});
    for (const quire_tensor* t : {&cache, &scale}) buffers.also_written(*t);
    key = buffers.output(QUIRE_F32, {11, 4, 16});
    value = buffers.output(QUIRE_F32, {11, 4, 16});
    args = {sizeof args, &current_key, &current_value, &seqstarts, &kvstarts, &cachestarts, &start_pos, 3,
            6,           &cache,       &scale,         &key,       &value};
}

PmxCacheAttentionCall::PmxCacheAttentionCall() {
    quire_pmx_multi_head_cache_attention_desc_init(&desc);
    set_heads(&desc);
    set_cache(&desc);
    desc.cache_layout = 1;
    query = buffers.numbers(QUIRE_F32, {2, 3, 4, 16});
    current_key = buffers.numbers(QUIRE_F32, {2, 3, 2, 16});
    current_value = buffers.numbers(QUIRE_F32, {2, 3, 2, 16});
    start_pos = buffers.indices({}, {4});
    cache = buffers.numbers(QUIRE_INT8, {2, 3, 2, 2, 10, 16});
    scale = buffers.numbers(QUIRE_F32, {2, 3, 2, 2, 10, 2});
    for (const quire_tensor* t : {&cache, &scale}) buffers.also_written(*t);
    attn_mask = buffers.numbers(QUIRE_F32, {4, 3, 7});
    sinks = buffers.numbers(QUIRE_F32, {4});
    attn_output = buffers.output(QUIRE_F32, {2, 3, 4, 16});
    lse = buffers.output(QUIRE_F32, {2, 3, 4});
    args = {sizeof args, &query,     &current_key, &current_value, &start_pos, &cache,
            &scale,      &attn_mask, &sinks,       &attn_output,   &lse};
}

PmxAttentionCall::PmxAttentionCall() {
    quire_pmx_multi_head_attention_desc_init(&desc);
    set_heads(&desc);
    query = buffers.numbers(QUIRE_F32, {2, 3, 4, 16});
    key = buffers.numbers(QUIRE_F32, {2, 7, 2, 16});
    value = buffers.numbers(QUIRE_F32, {2, 7, 2, 16});
    attn_mask = buffers.numbers(QUIRE_F32, {2, 4, 3, 7});
    sinks = buffers.numbers(QUIRE_F32, {4});
    attn_output = buffers.output(QUIRE_F32, {2, 3, 4, 16});
    lse = buffers.output(QUIRE_F32, {2, 3, 4});
    args = {sizeof args, &query, &key, &value, &attn_mask, &sinks, &attn_output, &lse};
}

PmxKeyValueCacheCall::PmxKeyValueCacheCall() {
    quire_pmx_key_value_cache_desc_init(&desc);
    set_cache(&desc);
    desc.num_kv_heads = 2;
    desc.head_dim = 16;
    desc.num_repeat = 2;
    current_key = buffers.numbers(QUIRE_F32, {2, 3, 2, 16});
    current_value = buffers.numbers(QUIRE_F32, {2, 3, 2, 16});
    start_pos = buffers.indices({1}, {4});
    cache = buffers.numbers(QUIRE_INT8, {3, 2, 2, 10, 2, 16});
    scale = buffers.numbers(QUIRE_F32, {3, 2, 2, 10, 2, 2});
    for (const quire_tensor* t : {&cache, &scale}) buffers.also_written(*t);
    key = buffers.output(QUIRE_F32, {2, 7, 4, 16});
    value = buffers.output(QUIRE_F32, {2, 7, 4, 16});
    args = {sizeof args, &current_key, &current_value, &start_pos, &cache, &scale, &key, &value};
}

}  // namespace quire::test
