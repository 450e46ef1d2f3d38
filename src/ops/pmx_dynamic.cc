// OpenPPL PMX dynamic_batching: its parameters -> the append and attention problems of the common path.
#include "src/ops/operator.h"

namespace quire {
namespace {

// Where the dimensions of `cache` and `scale` are, by cache_layout; the last is D or D / quant_group.
struct Layout {
    int token, layer, key_or_value, head;
};
constexpr Layout kLayouts[] = {{0, 1, 2, 3}, {1, 0, 2, 3}, {2, 0, 1, 3}, {3, 0, 1, 2}};
constexpr const char* kLayoutShapes[] = {"(MaxT, L, 2, Hk, ...)", "(L, MaxT, 2, Hk, ...)", "(L, 2, MaxT, Hk, ...)",
                                         "(L, 2, Hk, MaxT, ...)"};

using Desc = quire_pmx_dynamic_multi_head_cache_attention_desc;
using Args = quire_pmx_dynamic_multi_head_cache_attention_args;

Status check_quantisation(const Desc& desc, PmxCacheSpec* pmx) {
    if (desc.quant_bit != 0 && desc.quant_bit != 8 && desc.quant_bit != 4)
        return invalid("quant_bit is %d: must be 0, 8 or 4", desc.quant_bit);
    if (desc.query_type != QUIRE_F32 && desc.query_type != QUIRE_F16)
        return invalid("query_type is %s: must be f32 or f16", type_name(desc.query_type));
    pmx->query_type = desc.query_type;
    const quire_type coded = desc.quant_bit == 8 ? QUIRE_INT8 : desc.quant_bit == 4 ? QUIRE_INT4 : desc.query_type;
    pmx->cache_type = desc.cache_type == QUIRE_NONE ? coded : desc.cache_type;
    if (desc.quant_bit == 0) {
        if (pmx->cache_type != QUIRE_F32 && pmx->cache_type != QUIRE_F16)
            return invalid("cache_type is %s: must be f32 or f16 where quant_bit is 0", type_name(pmx->cache_type));
        pmx->scale_type = QUIRE_NONE;
        return {};
    }
    if (pmx->cache_type != coded)
        return invalid("cache_type is %s: must be %s where quant_bit is %d", type_name(pmx->cache_type),
                       type_name(coded), desc.quant_bit);
    if (desc.quant_group < 1 || desc.head_dim % desc.quant_group != 0)
        return invalid("quant_group is %d: must divide head_dim, %d", desc.quant_group, desc.head_dim);
    pmx->quant_group = desc.quant_group;
    pmx->scale_type = desc.scale_type == QUIRE_NONE ? desc.query_type : desc.scale_type;
    if (pmx->scale_type != QUIRE_F32 && pmx->scale_type != QUIRE_F16)
        return invalid("scale_type is %s: must be f32 or f16", type_name(pmx->scale_type));
    return {};
}

Status check_cache_attributes(const Desc& desc, PmxCacheSpec* pmx) {
    QUIRE_TRY(check_range("num_layer", desc.num_layer, 1, 1 << 20));
    QUIRE_TRY(check_range("layer_idx", desc.layer_idx, 0, desc.num_layer - 1));
    QUIRE_TRY(check_range("cache_mode", desc.cache_mode, 0, 1));
    QUIRE_TRY(check_range("cache_layout", desc.cache_layout, 0, 3));
    if (desc.cache_mode == 1) QUIRE_TRY(check_range("page_size", desc.page_size, 1, 1 << 30));
    pmx->num_layer = desc.num_layer;
    pmx->layer_idx = desc.layer_idx;
    pmx->cache_layout = desc.cache_layout;
    return {};
}

// Keys (part 0) or values (part 1) of the layer: [MaxT, Hk, last].
quire_tensor layer_rows(const PmxCacheSpec& pmx, const quire_tensor& all, int part) {
    const Layout& at = kLayouts[pmx.cache_layout];
    quire_tensor rows = {};
    const int64_t offset = pmx.layer_idx * all.strides[at.layer] + part * all.strides[at.key_or_value];
    rows.data = static_cast<char*>(all.data) + offset * type_bits(all.type) / 8;
    rows.type = all.type;
    rows.rank = 3;
    const int from[] = {at.token, at.head, 4};
    for (int i = 0; i < 3; ++i) {
        rows.shape[i] = all.shape[from[i]];
        rows.strides[i] = all.strides[from[i]];
    }
    return rows;
}

Status check_layers(const char* name, const quire_tensor* tensor, const PmxCacheSpec& pmx, quire_type type,
                    int64_t slots, int Hk, int64_t last) {
    const Layout& at = kLayouts[pmx.cache_layout];
    std::vector<int64_t> shape(5, 2);
    shape[size_t(at.token)] = slots;
    shape[size_t(at.layer)] = pmx.num_layer;
    shape[size_t(at.head)] = Hk;
    shape[4] = last;
    QUIRE_TRY(check_tensor(name, tensor, type, kLayoutShapes[pmx.cache_layout], shape));
    if (tensor->shape[4] > 1 && tensor->strides[4] != 1)
        return invalid("%s has stride %lld in its last dimension: must be 1", name, (long long)tensor->strides[4]);
    for (int i = 0; i < 4; ++i)
        if (type == QUIRE_INT4 && tensor->shape[i] > 1 && tensor->strides[i] % 2 != 0)
            return invalid("%s has stride %lld in dimension %d: must be even for int4", name,
                           (long long)tensor->strides[i], i);
    return {};
}

// The two statements of a sequence's length must agree.
Status check_lengths(const AttentionProblem& attention, const AppendProblem& append) {
    for (int64_t b = 0; b < attention.B; ++b) {
        const int64_t keys = append.start_pos(b) + attention.queries(b);
        if (attention.keys(b) != keys)
            return invalid("kvstarts[%lld] - kvstarts[%lld] is %lld: must be start_pos[%lld] + its new tokens, %lld",
                           (long long)(b + 1), (long long)b, (long long)attention.keys(b), (long long)b,
                           (long long)keys);
    }
    return {};
}

}  // namespace

Status make_pmx_dynamic(const Desc& desc, quire_plan* plan) {
    quire_attention_desc attention = {};
    attention.num_heads = desc.num_heads;
    attention.num_kv_heads = desc.num_kv_heads;
    attention.head_dim = desc.head_dim;
    attention.type = desc.query_type;
    attention.is_causal = desc.is_causal;
    attention.is_alibi = desc.is_alibi;
    attention.scale = desc.softmax_scale;
    attention.has_window = desc.has_window;
    attention.window_left = desc.window_left;
    attention.window_right = desc.window_right;
    attention.logits_soft_cap = desc.logits_soft_cap;
    attention.precision = desc.precision;
    QUIRE_TRY(check_range("head_dim", desc.head_dim, 1, 1024));
    QUIRE_TRY(check_quantisation(desc, &plan->pmx));
    QUIRE_TRY(check_cache_attributes(desc, &plan->pmx));
    const PmxCacheSpec& pmx = plan->pmx;
    attention.page_size = desc.cache_mode == 1 ? desc.page_size : 0;
    attention.key_format = attention.value_format = {pmx.cache_type, pmx.quant_group, pmx.scale_type};
    AttentionSpec spec;
    QUIRE_TRY(check_attention_desc(attention, &spec));
    const AppendSpec append{spec.Hk, spec.D, spec.Dv, spec.type, spec.key_format, spec.value_format, spec.page_size};
    QUIRE_TRY(plan_append(append, plan));
    return plan_attention(spec, plan);
}

Status prepare_pmx_dynamic(const quire_plan& plan, const Args& args, Run* run) {
    const PmxCacheSpec& pmx = plan.pmx;
    const AttentionSpec& spec = plan.attention.spec;
    const bool quantised = pmx.scale_type != QUIRE_NONE;
    QUIRE_TRY(check_layers("cache", args.cache, pmx, pmx.cache_type, kAny, spec.Hk, spec.D));
    quire_tensor key = layer_rows(pmx, *args.cache, 0), value = layer_rows(pmx, *args.cache, 1);
    quire_tensor key_scale = {}, value_scale = {};
    if (quantised) {
        QUIRE_TRY(check_layers("scale", args.scale, pmx, pmx.scale_type, key.shape[0], spec.Hk,
                               spec.D / pmx.quant_group));
        key_scale = layer_rows(pmx, *args.scale, 0);
        value_scale = layer_rows(pmx, *args.scale, 1);
    } else if (args.scale != nullptr) {
        return invalid("scale is given: must be NULL where quant_bit is 0");
    }
    if (args.query == nullptr) return invalid("query is NULL: must be a tensor [n, H, D]");
    if (args.seqstarts == nullptr) return invalid("seqstarts is NULL: must be a tensor [B + 1]");
    if (args.kvstarts == nullptr) return invalid("kvstarts is NULL: must be a tensor [B + 1]");
    if (args.attn_mask != nullptr && args.attn_mask->type != spec.type)
        return invalid("attn_mask has type %s: must be the query's, %s", type_name(args.attn_mask->type),
                       type_name(spec.type));

    const int64_t n = args.query->rank == 3 ? args.query->shape[0] : 0;
    QUIRE_TRY(check_tensor("query", args.query, spec.type, "[n, H, D]", {n, spec.H, spec.D}));
    QUIRE_TRY(check_tensor("current_key", args.current_key, spec.type, "[n, Hk, D]", {n, spec.Hk, spec.D}));
    QUIRE_TRY(check_tensor("current_value", args.current_value, spec.type, "[n, Hk, D]", {n, spec.Hk, spec.D}));
    QUIRE_TRY(check_tensor("attn_output", args.attn_output, spec.type, "[n, H, D]", {n, spec.H, spec.D}));

    quire_append_args append = {};
    append.new_key = args.current_key;
    append.new_value = args.current_value;
    quire_attention_args attention = {};
    append.key = attention.key = &key;
    append.value = attention.value = &value;
    append.key_scale = attention.key_scale = quantised ? &key_scale : nullptr;
    append.value_scale = attention.value_scale = quantised ? &value_scale : nullptr;
    append.seqstarts = attention.seqstarts = args.seqstarts;
    append.start_pos = args.start_pos;
    append.cachestarts = attention.cachestarts = args.cachestarts;
    attention.query = args.query;
    attention.kvstarts = args.kvstarts;
    attention.attn_mask = args.attn_mask;
    attention.sinks = args.sinks;
    attention.decoding_batches = args.decoding_batches;
    attention.output = args.attn_output;
    attention.lse = args.lse;
    if (args.cachestarts == nullptr)
        return invalid("cachestarts is NULL: must be a tensor %s", spec.page_size ? "[B, MaxP]" : "[B]");
    QUIRE_TRY(make_append_problem(plan.append.spec, append, &run->append));
    QUIRE_TRY(make_attention_problem(spec, attention, &run->attention));
    QUIRE_TRY(check_lengths(run->attention, run->append));
    run->start(plan.context, &plan.append, &plan.attention);
    return {};
}

}  // namespace quire
