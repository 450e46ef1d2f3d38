// quire.append
#include "python/src/context.h"
#include "python/src/format.h"
#include "python/src/operators.h"
#include "python/src/rotary.h"
#include "python/src/run.h"
#include "python/src/scalar.h"
#include "python/src/tensor.h"

namespace quire_python {

namespace {

constexpr const char* kDoc =
    R"(Stores new keys and values in a cache, quantising them where it is int8 or int4.

Letters and the types of arrays as in quire.attention. The tokens seqstarts[b] .. seqstarts[b + 1] go to positions
start_pos[b] .. of sequence b; nothing else is written. For each G values of a head, scale = max(max|x| / 127, 1e-5)
(int4: / 7) and the stored value is round(x / scale), ties to even.

Args:
    new_key, new_value: [n, Hk, D] and [n, Hk, Dv] float32, float16 or bfloat16.
    key, value: [slots, Hk, D] and [slots, Hk, Dv], changed in place: never copied, an error if read-only.
    key_scale, value_scale: [slots, Hk, D / G], changed in place; needed where key or value is int8 or packed int4.
    seqstarts: [B + 1] integers; None: one sequence.
    start_pos: [B] integers, or one number for all sequences.
    cachestarts: [B] rows where the sequences begin or, with page_size, [B, MaxP] rows where their pages begin.
        None, for one sequence without pages: row 0.
    page_size: tokens in a page of the cache; 0: no pages.
    rotary, rotary_cos, rotary_sin: a rotary position embedding of the keys, before they are stored; as in quire.rotate.
    positions: [n] or [B, S] integers, for the rotary embedding; None: the positions in the cache.
    hadamard_keys: True: keys are multiplied by a Hadamard matrix after that, which makes int4 lose less; queries must
        be, too: quire.rotate(query, hadamard=True).
    hadamard_values: True: values are; quire.rotate(output, hadamard=True) then gives what attention means.
    key_format, value_format: of uint8 keys and values: "int8_b16_gN" or "int4_b16_gN", blocks of 16 tokens as in
        quire.attention, without key_scale and value_scale; None: the array's type tells.
    context: a quire.Context; None: the default one.

Batches of one length: new_key [B, S, Hk, D] and new_value [B, S, Hk, Dv] (then no seqstarts). Either form is stored in rows
as above or in key [B, T, Hk, D] and value [B, T, Hk, Dv] (then no cachestarts), a sequence in each.

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

// Where the sequences begin: as given, row 0 for a single sequence, or None where each has its own rows.
nb::object rows_of(nb::handle cachestarts, const Tensor& new_key, const Tensor& key, const Tensor& seqstarts,
                   nb::handle page_size) {
    if (!cachestarts.is_none() || key.rank() == 4) return nb::borrow(cachestarts);
    const bool one_sequence = new_key.rank() == 4 ? new_key.shape(0) == 1
                              : !seqstarts.get()  ? true
                                                  : seqstarts.rank() == 1 && seqstarts.shape(0) == 2;
    if (!one_sequence) fail("cachestarts", "is None: must be given with more than one sequence");
    if (to_int32(page_size, "page_size") != 0) fail("cachestarts", "is None: must be given with page_size");
    return nb::module_::import_("quire._convert").attr("ROW_0");
}

void append(nb::handle new_key_array, nb::handle new_value_array, nb::handle key_array,
            nb::handle value_array, nb::handle key_scale_array, nb::handle value_scale_array,
            nb::handle seqstarts_array, nb::handle start_pos_array, nb::handle cachestarts_array,
            nb::handle page_size, nb::handle positions_array, nb::handle rotary, nb::handle rotary_cos_array,
            nb::handle rotary_sin_array, nb::handle hadamard_keys, nb::handle hadamard_values,
            nb::handle key_format, nb::handle value_format, nb::handle context_object) {
    Context& context = Context::of(context_object);
    Tensor positions(positions_array, optional_index_input("positions"));
    Tensor rotary_cos(rotary_cos_array, optional_input("rotary_cos", bit(QUIRE_F32)));
    Tensor rotary_sin(rotary_sin_array, optional_input("rotary_sin", bit(QUIRE_F32)));
    Tensor new_key(new_key_array, input("new_key", kActivations));
    Tensor new_value(new_value_array, input("new_value", kActivations));
    Tensor key(key_array, in_place("key", kRows));
    Tensor value(value_array, in_place("value", kRows));
    Tensor key_scale(key_scale_array, optional_in_place("key_scale", kHalfOrFloat));
    Tensor value_scale(value_scale_array, optional_in_place("value_scale", kHalfOrFloat));
    Tensor seqstarts(seqstarts_array, optional_index_input("seqstarts"));
    Tensor start_pos(start_pos_array, index_input("start_pos"));
    if (new_key.rank() != 4) new_key.require_rank(3, "[n, Hk, D] or [B, S, Hk, D]");
    new_value.require_rank(new_key.rank(), new_key.rank() == 4 ? "[B, S, Hk, Dv]" : "[n, Hk, Dv]");
    if (key.rank() != 4) key.require_rank(3, "[slots, Hk, D] or [B, T, Hk, D]");
    value.require_rank(key.rank(), key.rank() == 4 ? "[B, T, Hk, Dv]" : "[slots, Hk, Dv]");
    const int32_t key_group = take_blocks(key_format, "key_format", &key),
                  value_group = take_blocks(value_format, "value_format", &value);
    nb::object rows = rows_of(cachestarts_array, new_key, key, seqstarts, page_size);
    Tensor cachestarts(rows, optional_index_input("cachestarts"));

    auto desc = default_desc<quire_append_desc, quire_append_desc_init>();
    desc.num_kv_heads = to_int32(new_key.shape(new_key.rank() - 2), "new_key's number of heads");
    desc.head_dim = to_int32(new_key.last_dimension(), "new_key's head size");
    desc.value_head_dim = to_int32(new_value.last_dimension(), "new_value's head size");
    desc.type = new_key.type();
    desc.key_format = format_of(key, "key", key_scale, "key_scale", key_group);
    desc.value_format = format_of(value, "value", value_scale, "value_scale", value_group);
    desc.page_size = to_int32(page_size, "page_size");
    desc.rotary = to_rotary(rotary);
    desc.rotary_dim = rotary_dim_of(desc.rotary, rotary_cos);
    desc.hadamard_keys = to_bool(hadamard_keys, "hadamard_keys");
    desc.hadamard_values = to_bool(hadamard_values, "hadamard_values");

    quire_append_args args{};
    args.struct_size = sizeof args;
    args.new_key = new_key;
    args.new_value = new_value;
    args.key = key;
    args.value = value;
    args.key_scale = key_scale;
    args.value_scale = value_scale;
    args.seqstarts = seqstarts;
    args.start_pos = start_pos;
    args.cachestarts = cachestarts;
    args.positions = positions;
    args.rotary_cos = rotary_cos;
    args.rotary_sin = rotary_sin;
    Plan plan = context.append.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_append, quire_prepare_append);
}

}  // namespace

void bind_append(nb::module_& module) {
    define(module, "append", append, kDoc, arg("new_key"), arg("new_value"), arg("key"), arg("value"),
           arg("key_scale") = nb::none(), arg("value_scale") = nb::none(), arg("seqstarts") = nb::none(),
           arg("start_pos") = nb::none(), arg("cachestarts") = nb::none(), nb::kw_only(),
           arg("page_size") = 0, arg("positions") = nb::none(), arg("rotary") = nb::none(),
           arg("rotary_cos") = nb::none(), arg("rotary_sin") = nb::none(), arg("hadamard_keys") = false,
           arg("hadamard_values") = false, arg("key_format") = nb::none(), arg("value_format") = nb::none(),
           arg("context") = nb::none());
}

}  // namespace quire_python
