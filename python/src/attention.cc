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
        Or uint8: ggml's blocks of 32 values, with key_format and value_format, and a last dimension of their
        bytes (q8_0: D / 32 * 34).
        Or uint8 [slots / 16, Hk, bytes]: blocks of 16 tokens, as quire.append stores them and decode reads them fastest,
        with key_format and value_format "int8_b16_gN" or "int4_b16_gN" (N values share a scale; a multiple of 8),
        and bytes from quire.block_bytes. Rows where sequences and pages begin are multiples of 16 then, as is page_size.
    key_scale, value_scale: [slots, Hk, D / G] float32 or float16, where the key or value is quantised: one
        for each G values, which are the stored value times it.
    seqstarts: [B + 1] integers: where a sequence's queries begin; the last is n. None: one sequence.
    kvstarts: [B + 1] integers: the same of the keys. None: one sequence, that has all slots.
    cachestarts: [B] rows where the sequences begin or, with page_size, [B, MaxP] rows where their pages begin.
        None: sequence b begins at row kvstarts[b].
    attn_mask: float32, float16 or bfloat16, added to the scores: -inf hides a key; or bool: False hides.
        [n, >= kvstarts[B]] or [H or 1, n, >= kvstarts[B]], or by sequence [B or 1, H or 1, S or 1, T or 1].
    scale: of the scores; None: 1 / sqrt(D).
    is_causal: query i of S sees key j of T if j is at most its position.
    is_alibi: adds slope_h * (j - position) and hides later keys.
    window_left, window_right: keys seen before and after the query's own position; -1: all.
    logits_soft_cap: c > 0: scores become c * tanh(score / c), before mask and ALiBi.
    sinks: [H]: one more logit in the sum of the softmax, without a value.
    decoding_batches: the first so many sequences are not masked by is_causal.
    causal_corner: position of query i: "bottom_right" T - S + i (the queries are the last), "top_left" i.
    query_positions: [B] integers: position of each sequence's first query, in place of causal_corner.
    key_begin, key_end: [B] integers: only keys key_begin[b] <= j < key_end[b] are seen; None: all.
    tree_mask: [n, words] integers: bit j % 64 of word j // 64 says whether a query token sees new key j of its
        sequence, which is key T - S + j; older keys are seen.
    attn_mask_slopes: [H]: attn_mask is multiplied by it, head by head; -inf hides all the same. Not with a bool mask.
    page_size: tokens in a page of the cache; 0: no pages.
    precision: "highest", "high" or "medium".
    key_format, value_format: of uint8 keys and values: "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "int8_b16_gN" or
        "int4_b16_gN"; None: the array's type tells.
    return_lse: also return the logarithm of the softmax's sum.
    out: array of the output's shape and the query's type to write to; None: a new NumPy array.
    context: a quire.Context; None: the default one.

Returns:
    (output, lse): [n, H, Dv] of the query's type, and float32 [n, H] in natural logarithms or None. A query that
    sees no key gives zeros and -inf.

Batches of one length: query [B, S, H, D] (and then out [B, S, H, Dv], lse [B, S, H], no seqstarts), with keys and values
as above or [B, T, Hk, D] and [B, T, Hk, Dv] (then no kvstarts, no cachestarts). [B, H, S, D] is such a query with
swapaxes(1, 2).

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

void set_window(nb::handle left, nb::handle right, quire_attention_desc* desc) {
    desc->window_left = to_int32(left, "window_left");
    desc->window_right = to_int32(right, "window_right");
    desc->has_window = desc->window_left >= 0 || desc->window_right >= 0;
}

// The position of query i: T - S + i, or i.
int32_t to_causal_corner(nb::handle object) {
    if (PyUnicode_Check(object.ptr())) {
        if (PyUnicode_CompareWithASCIIString(object.ptr(), "bottom_right") == 0) return 0;
        if (PyUnicode_CompareWithASCIIString(object.ptr(), "top_left") == 0) return 1;
    }
    fail("causal_corner",
         std::string("is ") + nb::repr(object).c_str() + ": must be 'bottom_right' or 'top_left'");
}

// `out` as the caller gave it, or a new array.
nb::object output_array(nb::handle out, const Tensor& query, int64_t value_head_dim) {
    const int32_t last = query.rank() - 1;
    if (out.is_none())
        return last == 3
                   ? new_array(query.type(), {query.shape(0), query.shape(1), query.shape(2), value_head_dim})
                   : new_array(query.type(), {query.shape(0), query.shape(1), value_head_dim});
    Tensor given(out, in_place("out", bit(query.type())));
    given.require_rank(query.rank(), last == 3 ? "[B, S, H, Dv]" : "[n, H, Dv]");
    for (int32_t i = 0; i <= last; ++i) {
        const int64_t wanted = i == last ? value_head_dim : query.shape(i);
        if (given.shape(i) != wanted)
            fail("out", "has length " + std::to_string(given.shape(i)) + " in dimension " +
                            std::to_string(i) + ": must be " + std::to_string(wanted));
    }
    return nb::borrow(out);
}

nb::object lse_array(const Tensor& query) {
    return query.rank() == 4 ? new_array(QUIRE_F32, {query.shape(0), query.shape(1), query.shape(2)})
                             : new_array(QUIRE_F32, {query.shape(0), query.shape(1)});
}

nb::tuple attention(nb::handle query_array, nb::handle key_array, nb::handle value_array,
                    nb::handle key_scale_array, nb::handle value_scale_array, nb::handle seqstarts_array,
                    nb::handle kvstarts_array, nb::handle cachestarts_array, nb::handle attn_mask_array,
                    nb::handle scale, nb::handle is_causal, nb::handle is_alibi, nb::handle window_left,
                    nb::handle window_right, nb::handle logits_soft_cap, nb::handle sinks_array,
                    nb::handle decoding_batches, nb::handle causal_corner, nb::handle query_positions_array,
                    nb::handle key_begin_array, nb::handle key_end_array, nb::handle tree_mask_array,
                    nb::handle attn_mask_slopes_array, nb::handle page_size, nb::handle precision,
                    nb::handle key_format, nb::handle value_format, nb::handle return_lse, nb::handle out,
                    nb::handle context_object) {
    Context& context = Context::of(context_object);
    Tensor query(query_array, input("query", kActivations));
    Tensor key(key_array, input("key", kRows));
    Tensor value(value_array, input("value", kRows));
    Tensor key_scale(key_scale_array, optional_input("key_scale", kHalfOrFloat));
    Tensor value_scale(value_scale_array, optional_input("value_scale", kHalfOrFloat));
    Tensor seqstarts(seqstarts_array, optional_index_input("seqstarts"));
    Tensor kvstarts(kvstarts_array, optional_index_input("kvstarts"));
    Tensor cachestarts(cachestarts_array, optional_index_input("cachestarts"));
    Tensor attn_mask(attn_mask_array, optional_input("attn_mask", kActivations | bit(QUIRE_BOOL)));
    Tensor sinks(sinks_array, sinks_input());
    Tensor query_positions(query_positions_array, optional_index_input("query_positions"));
    Tensor key_begin(key_begin_array, optional_index_input("key_begin"));
    Tensor key_end(key_end_array, optional_index_input("key_end"));
    Tensor tree_mask(tree_mask_array, optional_index_input("tree_mask"));
    Tensor attn_mask_slopes(attn_mask_slopes_array, optional_input("attn_mask_slopes", bit(QUIRE_F32)));
    if (query.rank() != 4) query.require_rank(3, "[n, H, D] or [B, S, H, D]");
    if (key.rank() != 4) key.require_rank(3, "[slots, Hk, D] or [B, T, Hk, D]");
    value.require_rank(key.rank(), key.rank() == 4 ? "[B, T, Hk, Dv]" : "[slots, Hk, Dv]");
    const int32_t key_group = take_blocks(key_format, "key_format", &key),
                  value_group = take_blocks(value_format, "value_format", &value);
    const int64_t value_head_dim = head_size(value, "value", value_group);

    auto desc = default_desc<quire_attention_desc, quire_attention_desc_init>();
    desc.num_heads = to_int32(query.shape(query.rank() - 2), "query's number of heads");
    desc.num_kv_heads = to_int32(key.shape(key.rank() - 2), "key's number of heads");
    desc.head_dim = to_int32(query.last_dimension(), "query's head size");
    desc.value_head_dim = to_int32(value_head_dim, "value's head size");
    desc.type = query.type();
    desc.key_format = format_of(key, "key", key_scale, "key_scale", key_group);
    desc.value_format = format_of(value, "value", value_scale, "value_scale", value_group);
    desc.scale = to_softmax_scale(scale, "scale");
    desc.is_causal = to_bool(is_causal, "is_causal");
    desc.is_alibi = to_bool(is_alibi, "is_alibi");
    set_window(window_left, window_right, &desc);
    desc.logits_soft_cap = to_float(logits_soft_cap, "logits_soft_cap");
    desc.page_size = to_int32(page_size, "page_size");
    desc.causal_corner = to_causal_corner(causal_corner);
    desc.precision = to_precision(precision);

    nb::object output = output_array(out, query, value_head_dim);
    nb::object lse = to_bool(return_lse, "return_lse") ? lse_array(query) : nb::none();
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
    args.query_positions = query_positions;
    args.key_begin = key_begin;
    args.key_end = key_end;
    args.tree_mask = tree_mask;
    args.attn_mask_slopes = attn_mask_slopes;
    args.output = output_tensor;
    args.lse = lse_tensor;
    Plan plan = context.attention.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_attention, quire_prepare_attention);
    return nb::make_tuple(output, lse);
}

}  // namespace

void bind_attention(nb::module_& module) {
    define(module, "attention", attention, kDoc, arg("query"), arg("key"), arg("value"),
           arg("key_scale") = nb::none(), arg("value_scale") = nb::none(), arg("seqstarts") = nb::none(),
           arg("kvstarts") = nb::none(), arg("cachestarts") = nb::none(), arg("attn_mask") = nb::none(),
           nb::kw_only(), arg("scale") = nb::none(), arg("is_causal") = false, arg("is_alibi") = false,
           arg("window_left") = -1, arg("window_right") = -1, arg("logits_soft_cap") = 0,
           arg("sinks") = nb::none(), arg("decoding_batches") = 0, arg("causal_corner") = "bottom_right",
           arg("query_positions") = nb::none(), arg("key_begin") = nb::none(), arg("key_end") = nb::none(),
           arg("tree_mask") = nb::none(), arg("attn_mask_slopes") = nb::none(), arg("page_size") = 0,
           arg("precision") = "highest", arg("key_format") = nb::none(), arg("value_format") = nb::none(),
           arg("return_lse") = false, arg("out") = nb::none(), arg("context") = nb::none());
}

}  // namespace quire_python
