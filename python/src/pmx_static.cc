// quire.pmx.multi_head_cache_attention
#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/pmx.h"
#include "python/src/run.h"

namespace quire_python {

namespace {

constexpr const char* kDoc = R"(OpenPPL PMX MultiHeadCacheAttention.

Stores the new keys and values of sequences of one length in the cache (quantising them with quant_bit 8 or 4), then
attends to positions 0 .. T - 1 of each, T = start_pos + S. Names and meanings are those of the operator's document;
what follows `cache_layout` are extensions of quire. B sequences of S new tokens; H = num_heads, Hk = num_kv_heads;
D = head_dim; L = num_layer. T1, T2, T3 are the document's types.

Args:
    query: [B, S, H, D] T1: float32 or float16.
    current_key, current_value: [B, S, Hk, D] T1.
    start_pos: a number, 0-d array or array [1]: position of the first new token. start_pos + S <= MaxS.
    cache: T2: float32 or float16 (quant_bit 0), int8 (8), uint8 of packed int4 with D / 2 in the last dimension (4).
        Shape by cache_layout, with H for Hk and Dh for D: 0 (MaxB,L,2,MaxS,H,Dh), 1 (L,MaxB,2,H,MaxS,Dh); the
        sequences are the first B of MaxB. Changed in place: never copied, an error if read-only.
    scale: T3: float32 or float16, the same shape with Dh / quant_group. Changed in place. None without quant_bit.
    attn_mask: T1, [S, T], [H, S, T] or [B, H, S, T], added to the scores; -inf hides. Dimensions of 1 are broadcast;
        columns past T are not used. None: no mask.
    num_heads, head_dim, num_kv_heads, num_layer, layer_idx, quant_bit, quant_group, cache_layout: attributes of the
        document. num_kv_heads 0 is num_heads.
    is_causal: query i sees positions up to start_pos + i.
    is_alibi: adds slope_h * (j - (start_pos + i)) to position j, and hides later ones.
    softmax_scale: of the scores; None: 1 / sqrt(D).
    window_left, window_right: keys seen before and after the query's own position; -1: all.
    logits_soft_cap: c > 0: scores become c * tanh(score / c), before mask and ALiBi.
    sinks: [H]: one more logit in the sum of the softmax, without a value.
    return_lse: also return the logarithm of the softmax's sum.
    precision: "highest", "high" or "medium".
    context: a quire.Context; None: the default one.

Returns:
    attn_output, a new NumPy array [B, S, H, D] of T1; with return_lse (attn_output, lse), lse float32 [B, S, H] in
    natural logarithms. A query that sees no key gives zeros and -inf.

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

nb::object multi_head_cache_attention(
    nb::handle query_array, nb::handle current_key_array, nb::handle current_value_array,
    nb::handle start_pos_array, nb::handle cache_array, nb::handle scale_array, nb::handle attn_mask_array,
    nb::handle num_heads, nb::handle head_dim, nb::handle is_causal, nb::handle is_alibi,
    nb::handle num_kv_heads, nb::handle num_layer, nb::handle layer_idx, nb::handle quant_bit,
    nb::handle quant_group, nb::handle cache_layout, nb::handle softmax_scale, nb::handle window_left,
    nb::handle window_right, nb::handle logits_soft_cap, nb::handle sinks_array, nb::handle return_lse,
    nb::handle precision, nb::handle context_object) {
    Context& context = Context::of(context_object);
    auto desc = default_desc<quire_pmx_multi_head_cache_attention_desc,
                             quire_pmx_multi_head_cache_attention_desc_init>();
    AttentionAttributes{num_heads,     head_dim,    is_causal,    is_alibi,        num_kv_heads,
                        softmax_scale, window_left, window_right, logits_soft_cap, precision}
        .set(&desc);
    CacheAttributes{num_layer, layer_idx, quant_bit, quant_group, cache_layout}.set(&desc);
    Tensor query(query_array, input("query", kHalfOrFloat));
    Tensor current_key(current_key_array, input("current_key", kHalfOrFloat));
    Tensor current_value(current_value_array, input("current_value", kHalfOrFloat));
    Tensor start_pos(start_pos_array, index_input("start_pos"));
    Tensor cache(cache_array, in_place("cache", cache_types(desc.quant_bit)));
    Tensor scale(scale_array, optional_in_place("scale", kHalfOrFloat));
    Tensor attn_mask(attn_mask_array, optional_input("attn_mask", kHalfOrFloat));
    Tensor sinks(sinks_array, sinks_input());
    query.require_rank(4, "[B, S, H, D]");
    desc.query_type = query.type();
    desc.cache_type = cache.type();
    desc.scale_type = scale.type();
    AttentionResults results(query, return_lse);

    quire_pmx_multi_head_cache_attention_args args{};
    args.struct_size = sizeof args;
    args.query = query;
    args.current_key = current_key;
    args.current_value = current_value;
    args.start_pos = start_pos;
    args.cache = cache;
    args.scale = scale;
    args.attn_mask = attn_mask;
    args.sinks = sinks;
    results.give_to(&args);
    Plan plan = context.pmx_multi_head_cache_attention.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_pmx_multi_head_cache_attention,
        quire_prepare_pmx_multi_head_cache_attention);
    return results.get();
}

}  // namespace

void bind_pmx_static(nb::module_& module) {
    define(module, "multi_head_cache_attention", multi_head_cache_attention, kDoc, arg("query"),
           arg("current_key"), arg("current_value"), arg("start_pos"), arg("cache"),
           arg("scale") = nb::none(), arg("attn_mask") = nb::none(), nb::kw_only(), arg("num_heads"),
           arg("head_dim"), arg("is_causal"), arg("is_alibi") = false, arg("num_kv_heads") = 0,
           arg("num_layer") = 1, arg("layer_idx") = 0, arg("quant_bit") = 0, arg("quant_group") = 8,
           arg("cache_layout") = 0, arg("softmax_scale") = nb::none(), arg("window_left") = -1,
           arg("window_right") = -1, arg("logits_soft_cap") = 0, arg("sinks") = nb::none(),
           arg("return_lse") = false, arg("precision") = "highest", arg("context") = nb::none());
}

}  // namespace quire_python
