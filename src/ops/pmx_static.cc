// OpenPPL PMX, sequences of one length: its parameters -> the problems of the common path.
#include "src/ops/pmx_common.h"

namespace quire {
namespace {

// [] or [1].
Status read_start_pos(const quire_tensor* tensor, int64_t* value) {
    if (tensor == nullptr) return invalid("start_pos is NULL: must be a scalar, [] or [1]");
    IndexView view;
    if (tensor->rank == 1)
        QUIRE_TRY(check_index("start_pos", tensor, "[1]", {1}, &view));
    else
        QUIRE_TRY(check_index("start_pos", tensor, "[]", {}, &view));
    *value = view(0);
    return {};
}

// New tokens [B, S, Hk, D] (B and S may be kAny): the append problem, and the cache narrowed to B sequences
// of start_pos + S positions.
template <typename Args>
Status prepare_append_tokens(const quire_plan& plan, const Args& args, int64_t B, int64_t S,
                             PmxCacheViews* cache, Run* run) {
    const AppendSpec& spec = plan.append.spec;
    const char* letters = "[B, S, Hk, D]";
    QUIRE_TRY(cache->make(plan.pmx, spec, args.cache, args.scale));
    QUIRE_TRY(check_pmx_heads("current_key", args.current_key, spec.type, letters, {B, S, spec.Hk, spec.D}));
    B = args.current_key->shape[0];
    S = args.current_key->shape[1];
    QUIRE_TRY(
        check_pmx_heads("current_value", args.current_value, spec.type, letters, {B, S, spec.Hk, spec.D}));
    int64_t start = 0;
    QUIRE_TRY(read_start_pos(args.start_pos, &start));
    const int64_t MaxB = cache->length(0), MaxS = cache->length(1);
    if (MaxB < B)
        return invalid("cache has MaxB %lld: must be at least the sequences of current_key, %lld",
                       (long long)MaxB, (long long)B);
    if (start < 0) return invalid("start_pos is %lld: must be >= 0", (long long)start);
    if (start > MaxS - S)
        return invalid("start_pos is %lld: with %lld new tokens must be at most MaxS of cache, %lld",
                       (long long)start, (long long)S, (long long)MaxS);
    cache->narrow(B, start + S);
    quire_append_args append = {};
    cache->give_to(&append);
    append.new_key = args.current_key;
    append.new_value = args.current_value;
    quire_tensor scalar = *args.start_pos;
    scalar.rank = 0;
    append.start_pos = &scalar;
    return make_append_problem(spec, append, &run->append);
}

// The mask with missing dimensions in front as 1: [B or 1, H or 1, S or 1, >= T or 1].
Status broadcast_mask(const quire_tensor* mask, const AttentionSpec& spec, int64_t B, int64_t S, int64_t T,
                      quire_tensor* wide) {
    if (mask == nullptr) return {};
    QUIRE_TRY(check_pmx_mask_type(mask, spec.type));
    if (mask->rank < 2 || mask->rank > 4)
        return invalid("attn_mask has rank %d: must be 2 to 4, [S, T], [H, S, T] or [B, H, S, T]",
                       mask->rank);
    *wide = *mask;
    wide->rank = 4;
    const int64_t wanted[4] = {B, spec.H, S, T};
    for (int i = 0; i < 4; ++i) {
        const int from = i - (4 - mask->rank);
        wide->shape[i] = from < 0 ? 1 : mask->shape[from];
        wide->strides[i] = from < 0 ? 0 : mask->strides[from];
        const bool fits = wide->shape[i] == 1 || (i < 3 ? wide->shape[i] == wanted[i] : wide->shape[i] >= T);
        if (!fits)
            return invalid("attn_mask has shape %s: must broadcast to [B, H, S, T], [%lld, %lld, %lld, %lld]",
                           shape_text(*mask).c_str(), (long long)B, (long long)spec.H, (long long)S,
                           (long long)T);
    }
    return {};
}

// Query [B, S, H, D] against keys [B, T, Hk, D].
template <typename Args>
Status prepare_attend(const quire_plan& plan, const Args& args, const CacheTensors& keys, Run* run) {
    const AttentionSpec& spec = plan.attention.spec;
    const int64_t B = args.query->shape[0], S = args.query->shape[1], T = keys.key->shape[1];
    QUIRE_TRY(
        check_pmx_heads("attn_output", args.attn_output, spec.type, "[B, S, H, D]", {B, S, spec.H, spec.D}));
    QUIRE_TRY(check_written("attn_output", *args.attn_output));
    quire_tensor mask = {};
    QUIRE_TRY(broadcast_mask(args.attn_mask, spec, B, S, T, &mask));
    quire_attention_args attention = {};
    attention.query = args.query;
    attention.key = keys.key;
    attention.value = keys.value;
    attention.key_scale = keys.key_scale;
    attention.value_scale = keys.value_scale;
    attention.attn_mask = args.attn_mask == nullptr ? nullptr : &mask;
    attention.sinks = args.sinks;
    attention.output = args.attn_output;
    attention.lse = args.lse;
    return make_attention_problem(spec, attention, &run->attention);
}

}  // namespace

Status make_pmx_multi_head_cache_attention(const quire_pmx_multi_head_cache_attention_desc& desc,
                                           quire_plan* plan) {
    AttentionSpec spec;
    CacheSpec rows;
    QUIRE_TRY(check_pmx_type("query_type", desc.query_type));
    QUIRE_TRY(check_pmx_attention(desc, desc.query_type, &spec));
    QUIRE_TRY(check_pmx_cache(pmx_cache_attributes(desc), PmxDomain::fixed, spec.type, spec.Hk, spec.D,
                              &plan->pmx, &rows));
    return plan_pmx_cache_attention(spec, rows, plan);
}

Status prepare_pmx_multi_head_cache_attention(const quire_plan& plan,
                                              const quire_pmx_multi_head_cache_attention_args& args,
                                              Run* run) {
    const AttentionSpec& spec = plan.attention.spec;
    QUIRE_TRY(check_pmx_heads("query", args.query, spec.type, "[B, S, H, D]", {kAny, kAny, spec.H, spec.D}));
    PmxCacheViews cache;
    QUIRE_TRY(prepare_append_tokens(plan, args, args.query->shape[0], args.query->shape[1], &cache, run));
    QUIRE_TRY(prepare_attend(plan, args, cache.tensors(), run));
    run->start(plan.context, &plan.append, &plan.attention);
    return {};
}

Status make_pmx_multi_head_attention(const quire_pmx_multi_head_attention_desc& desc, quire_plan* plan) {
    AttentionSpec spec;
    QUIRE_TRY(check_pmx_type("type", desc.type));
    QUIRE_TRY(check_pmx_attention(desc, desc.type, &spec));
    return plan_attention(spec, plan);
}

Status prepare_pmx_multi_head_attention(const quire_plan& plan,
                                        const quire_pmx_multi_head_attention_args& args, Run* run) {
    const AttentionSpec& spec = plan.attention.spec;
    QUIRE_TRY(check_pmx_heads("query", args.query, spec.type, "[B, S, H, D]", {kAny, kAny, spec.H, spec.D}));
    const int64_t B = args.query->shape[0];
    const char* letters = "[B, T, Hk, D]";
    QUIRE_TRY(check_pmx_heads("key", args.key, spec.type, letters, {B, kAny, spec.Hk, spec.D}));
    QUIRE_TRY(
        check_pmx_heads("value", args.value, spec.type, letters, {B, args.key->shape[1], spec.Hk, spec.D}));
    QUIRE_TRY(prepare_attend(plan, args, {args.key, args.value, nullptr, nullptr, nullptr}, run));
    run->start(plan.context, nullptr, &plan.attention);
    return {};
}

Status make_pmx_key_value_cache(const quire_pmx_key_value_cache_desc& desc, quire_plan* plan) {
    CacheSpec rows;
    QUIRE_TRY(check_pmx_type("type", desc.type));
    QUIRE_TRY(check_range("num_kv_heads", desc.num_kv_heads, 1, 1 << 20));
    QUIRE_TRY(check_pmx_cache(pmx_cache_attributes(desc), PmxDomain::fixed, desc.type, desc.num_kv_heads,
                              desc.head_dim, &plan->pmx, &rows));
    return plan_pmx_key_value_cache(rows, desc.type, desc.num_repeat, plan);
}

Status prepare_pmx_key_value_cache(const quire_plan& plan, const quire_pmx_key_value_cache_args& args,
                                   Run* run) {
    PmxCacheViews cache;
    QUIRE_TRY(prepare_append_tokens(plan, args, kAny, kAny, &cache, run));
    const ReadArgs read = {run->append.B, cache.tensors(), nullptr, args.key, args.value};
    QUIRE_TRY(make_read_problem(plan.read.spec, read, &run->read));
    run->start(plan.context, &plan.append, nullptr, &plan.read);
    return {};
}

}  // namespace quire
