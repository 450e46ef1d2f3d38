// Valid calls of the PMX operators.
#include "tests/fuzz/batch.h"

namespace quire::fuzz {
namespace {

struct Cache {
    quire_type type, scale_type;
    int64_t L;
};

// The attributes of a cache; the shapes of `cache` and `scale` come from add_layers().
template <typename Desc>
Cache draw_cache(Source& source, quire_type T1, int64_t D, int layouts, Desc* d) {
    const quire_format format = draw_format(source, D);
    d->quant_bit = format.type == QUIRE_INT8 ? 8 : format.type == QUIRE_INT4 ? 4 : 0;
    if (format.quant_group != 0) d->quant_group = format.quant_group;
    d->num_layer = int32_t(source.between(1, 2));
    d->layer_idx = int32_t(source.between(0, d->num_layer - 1));
    d->cache_layout = int32_t(source.between(0, layouts - 1));
    d->cache_type = format.type == QUIRE_BF16 ? QUIRE_NONE : format.type;
    d->scale_type = source.pick<quire_type>({QUIRE_NONE, QUIRE_F32, QUIRE_F16});
    return {d->cache_type == QUIRE_NONE ? T1 : d->cache_type,
            d->scale_type == QUIRE_NONE ? T1 : d->scale_type, d->num_layer};
}

template <typename Desc>
void draw_attributes(Source& source, Desc* d) {
    d->is_causal = source.chance(128);
    d->is_alibi = source.chance(64);
    d->has_window = source.chance(64);
    d->window_left = int32_t(source.between(-1, 4));
    d->window_right = int32_t(source.between(-1, 4));
    d->logits_soft_cap = source.chance(64) ? 3.f : 0.f;
    d->precision = quire_precision(source.between(0, 2));
}

template <typename B>
void set_heads(const Heads& heads, B* b) {
    b->desc.num_heads = int32_t(heads.H);
    b->desc.num_kv_heads = int32_t(heads.Hk);
    b->desc.head_dim = int32_t(heads.D);
}

quire_type draw_type(Source& source) { return source.pick<quire_type>({QUIRE_F32, QUIRE_F16}); }

template <typename B>
void add_layers(B* b, const Cache& cache, std::vector<int64_t> shape) {
    QUIRE_FUZZ_ADD(*b, cache, Role::written, cache.type, shape);
    if (b->desc.quant_bit == 0) return;
    shape.back() /= b->desc.quant_group;
    QUIRE_FUZZ_ADD(*b, scale, Role::written, cache.scale_type, shape);
}

// ---- dynamic_batching ----

template <typename B>
void add_starts(B* b, const Batch& batch) {
    QUIRE_FUZZ_ADD(*b, seqstarts, Role::input, QUIRE_INT64, {batch.B() + 1}, batch.seqstarts);
    QUIRE_FUZZ_ADD(*b, kvstarts, Role::input, QUIRE_INT64, {batch.B() + 1}, batch.kvstarts);
    b->args.max_seqlen = b->args.max_kvlen = 7;
    b->scalar(b->args.max_seqlen);
    b->scalar(b->args.max_kvlen);
}

template <typename B>
void add_dynamic_cache(Source& source, const Heads& heads, quire_type T1, Batch* batch, B* b) {
    const Cache cache = draw_cache(source, T1, heads.D, 4, &b->desc);
    b->desc.cache_mode = source.chance(128);
    place_rows(source, b->desc.cache_mode == 1 ? Placement::pages : Placement::offsets, batch);
    if (b->desc.cache_mode == 1) b->desc.page_size = int32_t(batch->page_size);
    const int64_t L = cache.L, slots = batch->slots, Hk = heads.Hk, D = heads.D;
    const std::vector<int64_t> shapes[] = {
        {slots, L, 2, Hk, D}, {L, slots, 2, Hk, D}, {L, 2, slots, Hk, D}, {L, 2, Hk, slots, D}};
    add_layers(b, cache, shapes[b->desc.cache_layout]);
    QUIRE_FUZZ_ADD(*b, current_key, Role::input, T1, {batch->n(), Hk, D});
    QUIRE_FUZZ_ADD(*b, current_value, Role::input, T1, {batch->n(), Hk, D});
    QUIRE_FUZZ_ADD(*b, cachestarts, Role::input, QUIRE_INT64, batch->table_shape(), batch->cachestarts);
    QUIRE_FUZZ_ADD(*b, start_pos, Role::input, QUIRE_INT64, {batch->B()}, batch->start_positions());
}

template <typename B>
void add_dynamic_queries(Source& source, const Heads& heads, quire_type T1, const Batch& batch, B* b) {
    const int64_t n = batch.n(), H = heads.H;
    set_heads(heads, b);
    draw_attributes(source, &b->desc);
    QUIRE_FUZZ_ADD(*b, query, Role::input, T1, {n, H, heads.D});
    if (source.chance(96)) {
        std::vector<int64_t> shape = {n, batch.kvstarts.back() + source.between(0, 2)};
        if (source.chance(128)) shape.insert(shape.begin(), source.chance(128) ? H : 1);
        QUIRE_FUZZ_ADD(*b, attn_mask, Role::input, T1, shape);
    }
    if (source.chance(64)) QUIRE_FUZZ_ADD(*b, sinks, Role::input, QUIRE_F32, {H});
    QUIRE_FUZZ_ADD(*b, attn_output, Role::written, T1, {n, H, heads.D});
    if (source.chance(128)) QUIRE_FUZZ_ADD(*b, lse, Role::written, QUIRE_F32, {n, H});
    b->args.decoding_batches = source.between(0, batch.B());
    b->scalar(b->args.decoding_batches);
}

// ---- sequences of one length ----

template <typename B>
void add_fixed_cache(Source& source, const Heads& heads, quire_type T1, const Batch& batch, B* b) {
    const Cache cache = draw_cache(source, T1, heads.D, 2, &b->desc);
    const int64_t L = cache.L, Hk = heads.Hk, D = heads.D, S = batch.queries[0];
    const int64_t MaxB = batch.B() + source.between(0, 1), MaxS = batch.keys[0] + source.between(0, 3);
    const std::vector<int64_t> shapes[] = {{MaxB, L, 2, MaxS, Hk, D}, {L, MaxB, 2, Hk, MaxS, D}};
    add_layers(b, cache, shapes[b->desc.cache_layout]);
    QUIRE_FUZZ_ADD(*b, current_key, Role::input, T1, {batch.B(), S, Hk, D});
    QUIRE_FUZZ_ADD(*b, current_value, Role::input, T1, {batch.B(), S, Hk, D});
    const std::vector<int64_t> shape(source.chance(128) ? 1 : 0, 1);
    QUIRE_FUZZ_ADD(*b, start_pos, Role::input, QUIRE_INT64, shape, {batch.start_pos(0)});
}

template <typename B>
void add_fixed_queries(Source& source, const Heads& heads, quire_type T1, const Batch& batch, B* b) {
    const int64_t B_ = batch.B(), S = batch.queries[0], H = heads.H;
    set_heads(heads, b);
    draw_attributes(source, &b->desc);
    QUIRE_FUZZ_ADD(*b, query, Role::input, T1, {B_, S, H, heads.D});
    if (source.chance(96)) {
        std::vector<int64_t> shape = {B_, H, S, batch.keys[0]};
        for (int64_t& length : shape)
            if (source.chance(64)) length = 1;
        shape.erase(shape.begin(), shape.begin() + source.between(0, 2));
        QUIRE_FUZZ_ADD(*b, attn_mask, Role::input, T1, shape);
    }
    if (source.chance(64)) QUIRE_FUZZ_ADD(*b, sinks, Role::input, QUIRE_F32, {H});
    QUIRE_FUZZ_ADD(*b, attn_output, Role::written, T1, {B_, S, H, heads.D});
    if (source.chance(128)) QUIRE_FUZZ_ADD(*b, lse, Role::written, QUIRE_F32, {B_, S, H});
}

template <typename B>
int64_t draw_repeats(Source& source, const Heads& heads, B* b) {
    b->desc.num_kv_heads = int32_t(heads.Hk);
    b->desc.head_dim = int32_t(heads.D);
    b->desc.num_repeat = int32_t(source.between(1, 3));
    return heads.Hk * b->desc.num_repeat;
}

}  // namespace

Call make_pmx_dynamic_multi_head_cache_attention(Source& source) {
    Builder<quire_pmx_dynamic_multi_head_cache_attention_desc,
            quire_pmx_dynamic_multi_head_cache_attention_args>
        b(quire_pmx_dynamic_multi_head_cache_attention_desc_init);
    const Heads heads = draw_heads(source);
    const quire_type T1 = b.desc.query_type = draw_type(source);
    Batch batch = draw_batch(source, heads.small, false, false, true);
    add_dynamic_cache(source, heads, T1, &batch, &b);
    add_starts(&b, batch);
    add_dynamic_queries(source, heads, T1, batch, &b);
    return b.finish(QUIRE_FUZZ_FUNCTIONS(pmx_dynamic_multi_head_cache_attention));
}

Call make_pmx_dynamic_multi_head_attention(Source& source) {
    Builder<quire_pmx_dynamic_multi_head_attention_desc, quire_pmx_dynamic_multi_head_attention_args> b(
        quire_pmx_dynamic_multi_head_attention_desc_init);
    const Heads heads = draw_heads(source);
    const quire_type T = b.desc.type = draw_type(source);
    const Batch batch = draw_batch(source, heads.small, false, false, false);
    const int64_t rows = batch.kvstarts.back() + source.between(0, 2);
    QUIRE_FUZZ_ADD(b, key, Role::input, T, {rows, heads.Hk, heads.D});
    QUIRE_FUZZ_ADD(b, value, Role::input, T, {rows, heads.Hk, heads.D});
    add_starts(&b, batch);
    add_dynamic_queries(source, heads, T, batch, &b);
    return b.finish(QUIRE_FUZZ_FUNCTIONS(pmx_dynamic_multi_head_attention));
}

Call make_pmx_dynamic_key_value_cache(Source& source) {
    Builder<quire_pmx_dynamic_key_value_cache_desc, quire_pmx_dynamic_key_value_cache_args> b(
        quire_pmx_dynamic_key_value_cache_desc_init);
    const Heads heads = draw_heads(source);
    const quire_type T1 = b.desc.type = draw_type(source);
    const int64_t repeated = draw_repeats(source, heads, &b);
    Batch batch = draw_batch(source, heads.small, false, false, true);
    add_dynamic_cache(source, heads, T1, &batch, &b);
    add_starts(&b, batch);
    QUIRE_FUZZ_ADD(b, key, Role::written, T1, {batch.kvstarts.back(), repeated, heads.D});
    QUIRE_FUZZ_ADD(b, value, Role::written, T1, {batch.kvstarts.back(), repeated, heads.D});
    return b.finish(QUIRE_FUZZ_FUNCTIONS(pmx_dynamic_key_value_cache));
}

Call make_pmx_multi_head_cache_attention(Source& source) {
    Builder<quire_pmx_multi_head_cache_attention_desc, quire_pmx_multi_head_cache_attention_args> b(
        quire_pmx_multi_head_cache_attention_desc_init);
    const Heads heads = draw_heads(source);
    const quire_type T1 = b.desc.query_type = draw_type(source);
    const Batch batch = draw_batch(source, heads.small, true, true, true);
    add_fixed_cache(source, heads, T1, batch, &b);
    add_fixed_queries(source, heads, T1, batch, &b);
    return b.finish(QUIRE_FUZZ_FUNCTIONS(pmx_multi_head_cache_attention));
}

Call make_pmx_multi_head_attention(Source& source) {
    Builder<quire_pmx_multi_head_attention_desc, quire_pmx_multi_head_attention_args> b(
        quire_pmx_multi_head_attention_desc_init);
    const Heads heads = draw_heads(source);
    const quire_type T = b.desc.type = draw_type(source);
    const Batch batch = draw_batch(source, heads.small, true, true, false);
    QUIRE_FUZZ_ADD(b, key, Role::input, T, {batch.B(), batch.keys[0], heads.Hk, heads.D});
    QUIRE_FUZZ_ADD(b, value, Role::input, T, {batch.B(), batch.keys[0], heads.Hk, heads.D});
    add_fixed_queries(source, heads, T, batch, &b);
    return b.finish(QUIRE_FUZZ_FUNCTIONS(pmx_multi_head_attention));
}

Call make_pmx_key_value_cache(Source& source) {
    Builder<quire_pmx_key_value_cache_desc, quire_pmx_key_value_cache_args> b(
        quire_pmx_key_value_cache_desc_init);
    const Heads heads = draw_heads(source);
    const quire_type T1 = b.desc.type = draw_type(source);
    const int64_t repeated = draw_repeats(source, heads, &b);
    const Batch batch = draw_batch(source, heads.small, true, true, true);
    add_fixed_cache(source, heads, T1, batch, &b);
    QUIRE_FUZZ_ADD(b, key, Role::written, T1, {batch.B(), batch.keys[0], repeated, heads.D});
    QUIRE_FUZZ_ADD(b, value, Role::written, T1, {batch.B(), batch.keys[0], repeated, heads.D});
    return b.finish(QUIRE_FUZZ_FUNCTIONS(pmx_key_value_cache));
}

}  // namespace quire::fuzz
