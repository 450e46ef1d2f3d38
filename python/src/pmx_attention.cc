// quire.pmx.multi_head_attention and quire.pmx.dynamic_batching.multi_head_attention
#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/pmx.h"
#include "python/src/run.h"

namespace quire_python {

namespace {

constexpr const char* kDynamicDoc = R"(OpenPPL PMX dynamic_batching.MultiHeadAttention.

Attention of ragged queries over plain keys and values. Names and meanings are those of the operator's document; what
follows `num_kv_heads` are extensions of quire. B sequences; H = num_heads, Hk = num_kv_heads; D = head_dim; n query
tokens.

Args:
    query: [n, H, D] T: float32 or float16.
    key, value: [>= kvstarts[B], Hk, D] T.
    seqstarts: [B + 1] integers, where each sequence's queries begin; the last is n.
    kvstarts: [B + 1] integers, the same of its keys and values.
    decoding_batches: the first so many sequences are not masked by is_causal.
    max_seqlen, max_kvlen: not used.
    attn_mask: T, [n, >= kvstarts[B]] or [H, n, >= kvstarts[B]], added to the scores; -inf hides. None: no mask.
    num_heads, head_dim, num_kv_heads: attributes of the document. num_kv_heads 0 is num_heads.
    is_causal: query i of S sees key j of T if j <= T - S + i.
    is_alibi: adds slope_h * (j - (T - S + i)) and hides later keys.
    softmax_scale: of the scores; None: 1 / sqrt(D).
    window_left, window_right: keys seen before and after the query's own position; -1: all.
    logits_soft_cap: c > 0: scores become c * tanh(score / c), before mask and ALiBi.
    sinks: [H]: one more logit in the sum of the softmax, without a value.
    return_lse: also return the logarithm of the softmax's sum.
    precision: "highest", "high" or "medium".
    context: a quire.Context; None: the default one.

Returns:
    attn_output, a new NumPy array [n, H, D] of T; with return_lse (attn_output, lse), lse float32 [n, H] in natural
    logarithms. A query that sees no key gives zeros and -inf.

Raises quire.Error, naming the argument. The GIL is released while it runs.)";

constexpr const char* kDoc = R"(OpenPPL PMX MultiHeadAttention.

Attention over plain keys and values, of sequences of one length. Names and meanings are those of the operator's
document; what follows `num_kv_heads` are extensions of quire.

Args:
    query: [B, S, H, D] T: float32 or float16.
    key, value: [B, T, Hk, D] T.
    attn_mask: T, [S, T], [H, S, T] or [B, H, S, T], added to the scores; -inf hides. Dimensions of 1 are broadcast;
        columns past T are not used. None: no mask.
    The others: as in quire.pmx.dynamic_batching.multi_head_attention.

Returns:
    attn_output, a new NumPy array [B, S, H, D] of T; with return_lse (attn_output, lse), lse float32 [B, S, H].

Raises quire.Error, naming the argument. The GIL is released while it runs.)";

nb::object dynamic_attention(nb::handle query_array, nb::handle key_array, nb::handle value_array,
                             nb::handle seqstarts_array, nb::handle kvstarts_array,
                             nb::handle decoding_batches, nb::handle max_seqlen, nb::handle max_kvlen,
                             nb::handle attn_mask_array, nb::handle num_heads, nb::handle head_dim,
                             nb::handle is_causal, nb::handle is_alibi, nb::handle num_kv_heads,
                             nb::handle softmax_scale, nb::handle window_left, nb::handle window_right,
                             nb::handle logits_soft_cap, nb::handle sinks_array, nb::handle return_lse,
                             nb::handle precision, nb::handle context_object) {
    Context& context = Context::of(context_object);
    auto desc = default_desc<quire_pmx_dynamic_multi_head_attention_desc,
                             quire_pmx_dynamic_multi_head_attention_desc_init>();
    AttentionAttributes{num_heads,     head_dim,    is_causal,    is_alibi,        num_kv_heads,
                        softmax_scale, window_left, window_right, logits_soft_cap, precision}
        .set(&desc);
    Tensor query(query_array, input("query", kHalfOrFloat));
    Tensor key(key_array, input("key", kHalfOrFloat));
    Tensor value(value_array, input("value", kHalfOrFloat));
    Tensor seqstarts(seqstarts_array, index_input("seqstarts"));
    Tensor kvstarts(kvstarts_array, index_input("kvstarts"));
    Tensor attn_mask(attn_mask_array, optional_input("attn_mask", kHalfOrFloat));
    Tensor sinks(sinks_array, sinks_input());
    query.require_rank(3, "[n, H, D]");
    desc.type = query.type();
    AttentionResults results(query, return_lse);

    quire_pmx_dynamic_multi_head_attention_args args{};
    args.struct_size = sizeof args;
    args.query = query;
    args.key = key;
    args.value = value;
    args.seqstarts = seqstarts;
    args.kvstarts = kvstarts;
    args.decoding_batches = to_int64(decoding_batches, "decoding_batches");
    args.max_seqlen = to_int64(max_seqlen, "max_seqlen");
    args.max_kvlen = to_int64(max_kvlen, "max_kvlen");
    args.attn_mask = attn_mask;
    args.sinks = sinks;
    results.give_to(&args);
    Plan plan = context.pmx_dynamic_multi_head_attention.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_pmx_dynamic_multi_head_attention,
        quire_prepare_pmx_dynamic_multi_head_attention);
    return results.get();
}

nb::object attention(nb::handle query_array, nb::handle key_array, nb::handle value_array,
                     nb::handle attn_mask_array, nb::handle num_heads, nb::handle head_dim,
                     nb::handle is_causal, nb::handle is_alibi, nb::handle num_kv_heads,
                     nb::handle softmax_scale, nb::handle window_left, nb::handle window_right,
                     nb::handle logits_soft_cap, nb::handle sinks_array, nb::handle return_lse,
                     nb::handle precision, nb::handle context_object) {
    Context& context = Context::of(context_object);
    auto desc = default_desc<quire_pmx_multi_head_attention_desc, quire_pmx_multi_head_attention_desc_init>();
    AttentionAttributes{num_heads,     head_dim,    is_causal,    is_alibi,        num_kv_heads,
                        softmax_scale, window_left, window_right, logits_soft_cap, precision}
        .set(&desc);
    Tensor query(query_array, input("query", kHalfOrFloat));
    Tensor key(key_array, input("key", kHalfOrFloat));
    Tensor value(value_array, input("value", kHalfOrFloat));
    Tensor attn_mask(attn_mask_array, optional_input("attn_mask", kHalfOrFloat));
    Tensor sinks(sinks_array, sinks_input());
    query.require_rank(4, "[B, S, H, D]");
    desc.type = query.type();
    AttentionResults results(query, return_lse);

    quire_pmx_multi_head_attention_args args{};
    args.struct_size = sizeof args;
    args.query = query;
    args.key = key;
    args.value = value;
    args.attn_mask = attn_mask;
    args.sinks = sinks;
    results.give_to(&args);
    Plan plan = context.pmx_multi_head_attention.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_pmx_multi_head_attention, quire_prepare_pmx_multi_head_attention);
    return results.get();
}

}  // namespace

void bind_pmx_attention(nb::module_& pmx, nb::module_& dynamic_batching) {
    define(dynamic_batching, "multi_head_attention", dynamic_attention, kDynamicDoc, arg("query"), arg("key"),
           arg("value"), arg("seqstarts"), arg("kvstarts"), arg("decoding_batches"), arg("max_seqlen"),
           arg("max_kvlen"), arg("attn_mask") = nb::none(), nb::kw_only(), arg("num_heads"), arg("head_dim"),
           arg("is_causal"), arg("is_alibi") = false, arg("num_kv_heads") = 0,
           arg("softmax_scale") = nb::none(), arg("window_left") = -1, arg("window_right") = -1,
           arg("logits_soft_cap") = 0, arg("sinks") = nb::none(), arg("return_lse") = false,
           arg("precision") = "highest", arg("context") = nb::none());
    define(pmx, "multi_head_attention", attention, kDoc, arg("query"), arg("key"), arg("value"),
           arg("attn_mask") = nb::none(), nb::kw_only(), arg("num_heads"), arg("head_dim"), arg("is_causal"),
           arg("is_alibi") = false, arg("num_kv_heads") = 0, arg("softmax_scale") = nb::none(),
           arg("window_left") = -1, arg("window_right") = -1, arg("logits_soft_cap") = 0,
           arg("sinks") = nb::none(), arg("return_lse") = false, arg("precision") = "highest",
           arg("context") = nb::none());
}

}  // namespace quire_python
