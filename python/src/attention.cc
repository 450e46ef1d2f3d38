// quire.attention
#include "python/src/context.h"
#include "python/src/format.h"
#include "python/src/operators.h"
#include "python/src/output.h"
#include "python/src/run.h"
#include "python/src/scalar.h"
#include "python/src/tensor.h"

namespace quire_python {

namespace {

constexpr const char* kDoc = R"(Attention of ragged queries over dense or cached keys and values.

B sequences with H query heads and Hk key/value heads (H % Hk == 0) of D values (Dv of the values); n query
tokens in all. Arrays are NumPy's or any with __dlpack__ on the CPU, of any strides, and are not copied.

Args:
    query: [n, H, D] float32, float16 or bfloat16.
    key, value: [slots, Hk, D] and [slots, Hk, Dv] float32, float16, bfloat16, int8, or uint8: packed int4,
        two values a byte (see quire.pack_int4), with a last dimension of half the length.
    key_scale, value_scale: [slots, Hk, D / G] float32 or float16, where the key or value is quantised: one
        for each G values, which are the stored value times it.
    seqstarts: [B + 1] integers: where a sequence's queries begin; the last is n. None: one sequence.
    kvstarts: [B + 1] integers: the same of the keys. None: one sequence, that has all slots.
    cachestarts: [B] rows where the sequences begin or, with page_size, [B, MaxP] rows where their pages begin.
        None: sequence b begins at row kvstarts[b].
    attn_mask: float32 or float16, [n, >= kvstarts[B]] or [H or 1, n, >= kvstarts[B]], added to the scores;
        -inf hides a key.
    scale: of the scores; None: 1 / sqrt(D).
    is_causal: query i of S sees key j of T if j <= T - S + i.
    is_alibi: adds slope_h * (j - (T - S + i)) and hides later keys.
    window_left, window_right: keys seen before and after the query's own position; -1: all.
    logits_soft_cap: c > 0: scores become c * tanh(score / c), before mask and ALiBi.
    sinks: [H]: one more logit in the sum of the softmax, without a value.
    decoding_batches: the first so many sequences are not masked by is_causal.
    page_size: tokens in a page of the cache; 0: no pages.
    precision: "highest", "high" or "medium".
    return_lse: also return the logarithm of the softmax's sum.
    out: [n, H, Dv] array of the query's type to write to; None: a new NumPy array.
    context: a quire.Context; None: the default one.

Returns:
    (output, lse): [n, H, Dv] of the query's type, and float32 [n, H] in natural logarithms or None. A query that
    sees no key gives zeros and -inf.

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

void set_window(nb::handle left, nb::handle right, quire_attention_desc* desc) {
    desc->window_left = to_int32(left, "window_left");
    desc->window_right = to_int32(right, "window_right");
    desc->has_window = desc->window_left >= 0 || desc->window_right >= 0;
}

// `out` as the caller gave it, or a new array.
nb::object output_array(nb::handle out, const Tensor& query, const Tensor& value) {
    const int64_t shape[3] = {query.shape(0), query.shape(1), value.last_dimension()};
    if (out.is_none()) return new_array(query.type(), {shape[0], shape[1], shape[2]});
    Tensor given(out, in_place("out", bit(query.type())));
    given.require_rank(3, "[n, H, Dv]");
    for (int i = 0; i < 3; ++i)
        if (given.shape(i) != shape[i])
            fail("out", "has length " + std::to_string(given.shape(i)) + " in dimension " +
                            std::to_string(i) + ": must be " + std::to_string(shape[i]));
    return nb::borrow(out);
}

nb::tuple attention(nb::handle query_array, nb::handle key_array, nb::handle value_array,
                    nb::handle key_scale_array, nb::handle value_scale_array, nb::handle seqstarts_array,
                    nb::handle kvstarts_array, nb::handle cachestarts_array, nb::handle attn_mask_array,
                    nb::handle scale, nb::handle is_causal, nb::handle is_alibi, nb::handle window_left,
                    nb::handle window_right, nb::handle logits_soft_cap, nb::handle sinks_array,
                    nb::handle decoding_batches, nb::handle page_size, nb::handle precision,
                    nb::handle return_lse, nb::handle out, nb::handle context_object) {
    Context& context = Context::of(context_object);
    Tensor query(query_array, input("query", kActivations));
    Tensor key(key_array, input("key", kRows));
    Tensor value(value_array, input("value", kRows));
    Tensor key_scale(key_scale_array, optional_input("key_scale", kHalfOrFloat));
    Tensor value_scale(value_scale_array, optional_input("value_scale", kHalfOrFloat));
    Tensor seqstarts(seqstarts_array, optional_index_input("seqstarts"));
    Tensor kvstarts(kvstarts_array, optional_index_input("kvstarts"));
    Tensor cachestarts(cachestarts_array, optional_index_input("cachestarts"));
    Tensor attn_mask(attn_mask_array, optional_input("attn_mask", kHalfOrFloat | bit(QUIRE_BOOL)));
    Tensor sinks(sinks_array, sinks_input());
    query.require_rank(3, "[n, H, D]");
    key.require_rank(3, "[slots, Hk, D]");
    value.require_rank(3, "[slots, Hk, Dv]");

    auto desc = default_desc<quire_attention_desc, quire_attention_desc_init>();
    desc.num_heads = to_int32(query.shape(1), "query.shape[1]");
    desc.num_kv_heads = to_int32(key.shape(1), "key.shape[1]");
    desc.head_dim = to_int32(query.shape(2), "query.shape[2]");
    desc.value_head_dim = to_int32(value.shape(2), "value.shape[2]");
    desc.type = query.type();
    desc.key_format = format_of(key, "key", key_scale, "key_scale");
    desc.value_format = format_of(value, "value", value_scale, "value_scale");
    desc.scale = to_softmax_scale(scale, "scale");
    desc.is_causal = to_bool(is_causal, "is_causal");
    desc.is_alibi = to_bool(is_alibi, "is_alibi");
    set_window(window_left, window_right, &desc);
    desc.logits_soft_cap = to_float(logits_soft_cap, "logits_soft_cap");
    desc.page_size = to_int32(page_size, "page_size");
    desc.precision = to_precision(precision);

    nb::object output = output_array(out, query, value);
    nb::object lse = to_bool(return_lse, "return_lse")
                         ? new_array(QUIRE_F32, {query.shape(0), query.shape(1)})
                         : nb::none();
    Tensor output_tensor(output, in_place("out", bit(query.type())));
    Tensor lse_tensor(lse, optional_in_place("lse", bit(QUIRE_F32)));

    quire_attention_args args{};
    args.struct_size = sizeof args;
    args.query = query;
    args.key = key;
    args.value = value;
    args.key_scale = key_scale;
    args.value_scale = value_scale;
    args.seqstarts = seqstarts;
    args.kvstarts = kvstarts;
    args.cachestarts = cachestarts;
    args.attn_mask = attn_mask;
    args.sinks = sinks;
    args.decoding_batches = to_int64(decoding_batches, "decoding_batches");
    args.output = output_tensor;
    args.lse = lse_tensor;
    Plan plan = context.attention.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_attention, quire_prepare_attention);
    return nb::make_tuple(output, lse);
}

}  // namespace

void bind_attention(nb::module_& module) {
    module.def("attention", attention, arg("query"), arg("key"), arg("value"), arg("key_scale") = nb::none(),
               arg("value_scale") = nb::none(), arg("seqstarts") = nb::none(), arg("kvstarts") = nb::none(),
               arg("cachestarts") = nb::none(), arg("attn_mask") = nb::none(), nb::kw_only(),
               arg("scale") = nb::none(), arg("is_causal") = false, arg("is_alibi") = false,
               arg("window_left") = -1, arg("window_right") = -1, arg("logits_soft_cap") = 0,
               arg("sinks") = nb::none(), arg("decoding_batches") = 0, arg("page_size") = 0,
               arg("precision") = "highest", arg("return_lse") = false, arg("out") = nb::none(),
               arg("context") = nb::none(), kDoc);
}

}  // namespace quire_python
