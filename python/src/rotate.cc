// quire.rotate and quire.rotary_tables
#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/output.h"
#include "python/src/rotary.h"
#include "python/src/run.h"
#include "python/src/scalar.h"
#include "python/src/tensor.h"

namespace quire_python {

quire_rotary to_rotary(nb::handle object) {
    if (object.is_none()) return QUIRE_ROTARY_NONE;
    if (PyUnicode_Check(object.ptr())) {
        if (PyUnicode_CompareWithASCIIString(object.ptr(), "halves") == 0) return QUIRE_ROTARY_HALVES;
        if (PyUnicode_CompareWithASCIIString(object.ptr(), "interleaved") == 0)
            return QUIRE_ROTARY_INTERLEAVED;
    }
    fail("rotary",
         std::string("is ") + nb::repr(object).c_str() + ": must be None, 'halves' or 'interleaved'");
}

int32_t rotary_dim_of(quire_rotary rotary, const Tensor& cos) {
    if (rotary == QUIRE_ROTARY_NONE || cos.get() == nullptr) return 0;
    cos.require_rank(2, "[MaxPos, R / 2]");
    return to_int32(cos.last_dimension() * 2, "rotary_cos's number of angles");
}

namespace {

constexpr const char* kRotateDoc =
    R"(Rotates queries as quire.append rotates new keys: rotary position embedding, Hadamard rotation, or both.

Args:
    input: [n, H, D] or [B, S, H, D] float32, float16 or bfloat16.
    positions: [n] or [B, S] integers, rows of rotary_cos; needed with a rotary embedding.
    rotary: None, "halves" (pairs i and i + R / 2: transformers' llama, GPT-NeoX) or "interleaved" (2i and 2i + 1: GPT-J,
        llama in GGUF files).
    rotary_cos, rotary_sin: float32 [MaxPos, R / 2] cosines and sines, as quire.rotary_tables gives them; the first R
        elements of a head are rotated.
    hadamard: True: each block of elements (the largest power of two that divides D) is multiplied by the orthonormal
        Walsh-Hadamard matrix, after the rotary embedding. It is its own inverse.
    output: an array like input to write to, may be input itself; None: a new NumPy array.
    context: a quire.Context; None: the default one.

Returns:
    output. Computed in float32, then rounded to its type.

Raises quire.Error, naming the argument; nothing was written then. The GIL is released while it runs.)";

nb::object rotate(nb::handle input_array, nb::handle positions_array, nb::handle rotary, nb::handle cos_array,
                  nb::handle sin_array, nb::handle hadamard, nb::handle output_array,
                  nb::handle context_object) {
    Context& context = Context::of(context_object);
    Tensor from(input_array, input("input", kActivations));
    Tensor positions(positions_array, optional_index_input("positions"));
    Tensor cos(cos_array, optional_input("rotary_cos", bit(QUIRE_F32)));
    Tensor sin(sin_array, optional_input("rotary_sin", bit(QUIRE_F32)));
    if (from.rank() != 4) from.require_rank(3, "[n, H, D] or [B, S, H, D]");
    nb::object output = nb::borrow(output_array);
    if (output.is_none())
        output = from.rank() == 4
                     ? new_array(from.type(), {from.shape(0), from.shape(1), from.shape(2), from.shape(3)})
                     : new_array(from.type(), {from.shape(0), from.shape(1), from.shape(2)});
    Tensor to(output, in_place("output", kActivations));

    auto desc = default_desc<quire_rotate_desc, quire_rotate_desc_init>();
    desc.num_heads = to_int32(from.shape(from.rank() - 2), "input's number of heads");
    desc.head_dim = to_int32(from.last_dimension(), "input's head size");
    desc.type = from.type();
    desc.rotary = to_rotary(rotary);
    desc.rotary_dim = rotary_dim_of(desc.rotary, cos);
    desc.hadamard = to_bool(hadamard, "hadamard");

    quire_rotate_args args{};
    args.struct_size = sizeof args;
    args.input = from;
    args.output = to;
    args.positions = positions;
    args.rotary_cos = cos;
    args.rotary_sin = sin;
    Plan plan = context.rotate.find_or_make(context.handle(), desc);
    run(context, plan, args, quire_rotate, quire_prepare_rotate);
    return output;
}

constexpr const char* kTablesDoc =
    R"(Cosines and sines of a plain rotary position embedding: float32 [max_pos, rotary_dim / 2] each.

Entry i of position t is of the angle t * theta_base ** (-2 * i / rotary_dim). Models that scale their frequencies need
tables of their own, of the same shape.)";

nb::tuple rotary_tables(nb::handle max_pos, nb::handle rotary_dim, nb::handle theta_base) {
    const int64_t rows = to_int64(max_pos, "max_pos"), dim = to_int64(rotary_dim, "rotary_dim");
    if (rows < 0) fail("max_pos", "is " + std::to_string(rows) + ": must be at least 0");
    if (dim < 2 || dim > 1024 || dim % 2 != 0)
        fail("rotary_dim", "is " + std::to_string(dim) + ": must be even, 2 to 1024");
    double base = 0;
    if (!nb::try_cast(theta_base, base)) fail("theta_base", "must be a number");
    nb::object cos = new_array(QUIRE_F32, {rows, dim / 2}), sin = new_array(QUIRE_F32, {rows, dim / 2});
    Tensor cos_tensor(cos, in_place("cos", bit(QUIRE_F32))), sin_tensor(sin, in_place("sin", bit(QUIRE_F32)));
    {
        nb::gil_scoped_release unlocked;
        check(quire_rotary_tables(base, cos_tensor, sin_tensor));
    }
    return nb::make_tuple(cos, sin);
}

}  // namespace

void bind_rotate(nb::module_& module) {
    define(module, "rotate", rotate, kRotateDoc, arg("input"), nb::kw_only(), arg("positions") = nb::none(),
           arg("rotary") = nb::none(), arg("rotary_cos") = nb::none(), arg("rotary_sin") = nb::none(),
           arg("hadamard") = false, arg("output") = nb::none(), arg("context") = nb::none());
    define(module, "rotary_tables", rotary_tables, kTablesDoc, arg("max_pos"), arg("rotary_dim"),
           arg("theta_base") = 10000.0);
}

}  // namespace quire_python
