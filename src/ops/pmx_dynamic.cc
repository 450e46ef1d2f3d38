// OpenPPL PMX dynamic_batching: its parameters -> the problems of the common path.
#include "src/ops/pmx_common.h"

namespace quire {
namespace {

// Sequences and where they are.
template <typename Args>
Status check_starts_given(const Args& args) {
    if (args.seqstarts == nullptr) return invalid("seqstarts is NULL: must be a tensor [B + 1]");
    if (args.kvstarts == nullptr) return invalid("kvstarts is NULL: must be a tensor [B + 1]");
    return {};
}

// New tokens: the append problem.
template <typename Args>
Status prepare_append_tokens(const quire_plan& plan, const PmxCacheViews& cache, const Args& args, int64_t n,
                             Run* run) {
    const AppendSpec& spec = plan.append.spec;
    QUIRE_TRY(check_starts_given(args));
    QUIRE_TRY(
        check_pmx_heads("current_key", args.current_key, spec.type, "[n, Hk, D]", {n, spec.Hk, spec.D}));
    n = args.current_key->shape[0];
    QUIRE_TRY(
        check_pmx_heads("current_value", args.current_value, spec.type, "[n, Hk, D]", {n, spec.Hk, spec.D}));
    quire_append_args append = {};
    cache.give_to(&append);
    append.new_key = args.current_key;
    append.new_value = args.current_value;
    append.seqstarts = args.seqstarts;
    append.start_pos = args.start_pos;
    append.cachestarts = args.cachestarts;
    if (args.start_pos != nullptr && args.start_pos->rank != 1)
        return invalid("start_pos has rank %d: must be 1, [B]", args.start_pos->rank);
    return make_append_problem(spec, append, &run->append);
}

// The two statements of a sequence's length must agree.
Status check_lengths(const Starts& keys_at, const AppendProblem& append) {
    for (int64_t b = 0; b < append.B; ++b) {
        const int64_t keys = append.start_pos(b) + append.queries(b);
        if (keys_at.length(b) != keys)
            return invalid(
                "kvstarts[%lld] - kvstarts[%lld] is %lld: must be start_pos[%lld] + its new tokens, %lld",
                (long long)(b + 1), (long long)b, (long long)keys_at.length(b), (long long)b,
                (long long)keys);
    }
    return {};
}

// What both attention operators have; `kvstarts` and the tensors of keys and values come beside it.
template <typename Args>
Status translate_queries(const AttentionSpec& spec, const Args& args, quire_attention_args* attention) {
    QUIRE_TRY(check_starts_given(args));
    QUIRE_TRY(check_pmx_mask_type(args.attn_mask, spec.type));
    QUIRE_TRY(check_pmx_heads("query", args.query, spec.type, "[n, H, D]", {kAny, spec.H, spec.D}));
    QUIRE_TRY(check_pmx_heads("attn_output", args.attn_output, spec.type, "[n, H, D]",
                              {args.query->shape[0], spec.H, spec.D}));
    QUIRE_TRY(check_written("attn_output", *args.attn_output));
    attention->query = args.query;
    attention->seqstarts = args.seqstarts;
    attention->kvstarts = args.kvstarts;
    attention->attn_mask = args.attn_mask;
    attention->sinks = args.sinks;
    attention->decoding_batches = args.decoding_batches;
    attention->output = args.attn_output;
    attention->lse = args.lse;
    return {};
}

}  // namespace

Status make_pmx_dynamic_multi_head_cache_attention(
    const quire_pmx_dynamic_multi_head_cache_attention_desc& desc, quire_plan* plan) {
    AttentionSpec spec;
    CacheSpec rows;
    QUIRE_TRY(check_pmx_type("query_type", desc.query_type));
    QUIRE_TRY(check_pmx_attention(desc, desc.query_type, &spec));
    QUIRE_TRY(check_pmx_cache(pmx_cache_attributes(desc), PmxDomain::dynamic, spec.type, spec.Hk, spec.D,
                              &plan->pmx, &rows));
    QUIRE_TRY(check_pmx_paging(desc.cache_mode, desc.page_size, &rows));
    return plan_pmx_cache_attention(spec, rows, plan);
}

Status prepare_pmx_dynamic_multi_head_cache_attention(
    const quire_plan& plan, const quire_pmx_dynamic_multi_head_cache_attention_args& args, Run* run) {
    const AttentionSpec& spec = plan.attention.spec;
    PmxCacheViews cache;
    QUIRE_TRY(cache.make(plan.pmx, spec, args.cache, args.scale));
    quire_attention_args attention = {};
    QUIRE_TRY(translate_queries(spec, args, &attention));
    QUIRE_TRY(prepare_append_tokens(plan, cache, args, args.query->shape[0], run));
    cache.give_to(&attention);
    attention.cachestarts = args.cachestarts;
    QUIRE_TRY(make_attention_problem(spec, attention, &run->attention));
    QUIRE_TRY(check_lengths(run->attention.keys_at, run->append));
    run->start(plan.context, &plan.append, &plan.attention);
    return {};
}

Status make_pmx_dynamic_multi_head_attention(const quire_pmx_dynamic_multi_head_attention_desc& desc,
                                             quire_plan* plan) {
    AttentionSpec spec;
    QUIRE_TRY(check_pmx_type("type", desc.type));
    QUIRE_TRY(check_pmx_attention(desc, desc.type, &spec));
    return plan_attention(spec, plan);
}

Status prepare_pmx_dynamic_multi_head_attention(const quire_plan& plan,
                                                const quire_pmx_dynamic_multi_head_attention_args& args,
                                                Run* run) {
    const AttentionSpec& spec = plan.attention.spec;
    quire_attention_args attention = {};
    QUIRE_TRY(translate_queries(spec, args, &attention));
    const char* letters = "[>= kvstarts[B], Hk, D]";
    QUIRE_TRY(check_pmx_heads("key", args.key, spec.type, letters, {kAny, spec.Hk, spec.D}));
    QUIRE_TRY(
        check_pmx_heads("value", args.value, spec.type, letters, {args.key->shape[0], spec.Hk, spec.D}));
    attention.key = args.key;
    attention.value = args.value;
    QUIRE_TRY(make_attention_problem(spec, attention, &run->attention));
    run->start(plan.context, nullptr, &plan.attention);
    return {};
}

Status make_pmx_dynamic_key_value_cache(const quire_pmx_dynamic_key_value_cache_desc& desc,
                                        quire_plan* plan) {
    CacheSpec rows;
    QUIRE_TRY(check_pmx_type("type", desc.type));
    QUIRE_TRY(check_range("num_kv_heads", desc.num_kv_heads, 1, 1 << 20));
    QUIRE_TRY(check_pmx_cache(pmx_cache_attributes(desc), PmxDomain::dynamic, desc.type, desc.num_kv_heads,
                              desc.head_dim, &plan->pmx, &rows));
    QUIRE_TRY(check_pmx_paging(desc.cache_mode, desc.page_size, &rows));
    return plan_pmx_key_value_cache(rows, desc.type, desc.num_repeat, plan);
}

Status prepare_pmx_dynamic_key_value_cache(const quire_plan& plan,
                                           const quire_pmx_dynamic_key_value_cache_args& args, Run* run) {
    PmxCacheViews cache;
    QUIRE_TRY(cache.make(plan.pmx, plan.read.spec, args.cache, args.scale));
    QUIRE_TRY(prepare_append_tokens(plan, cache, args, kAny, run));
    ReadArgs read = {run->append.B, cache.tensors(), args.kvstarts, args.key, args.value};
    read.cache.cachestarts = args.cachestarts;
    QUIRE_TRY(make_read_problem(plan.read.spec, read, &run->read));
    QUIRE_TRY(check_lengths(run->read.keys_at, run->append));
    run->start(plan.context, &plan.append, nullptr, &plan.read);
    return {};
}

}  // namespace quire
