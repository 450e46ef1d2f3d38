// quire.merge_states
#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/output.h"
#include "python/src/tensor.h"

namespace quire_python {

namespace {

constexpr const char* kDoc =
    R"(Attention over two disjoint parts of the keys, merged into attention over both.

Args:
    output_a, output_b: [n, H, Dv] float32, float16 or bfloat16, of one type.
    lse_a, lse_b: float32 [n, H], as quire.attention returns them (natural logarithms).
    context: a quire.Context; None: the default one.

Returns:
    (output, lse): new NumPy arrays of the same shapes and types. A part with lse -inf counts for nothing; where both
    have it, zeros and -inf.

Raises quire.Error, naming the argument. The GIL is released while it runs.)";

nb::tuple merge_states(nb::handle output_a_array, nb::handle lse_a_array, nb::handle output_b_array,
                       nb::handle lse_b_array, nb::handle context_object) {
    Context& context = Context::of(context_object);
    Tensor output_a(output_a_array, input("output_a", kActivations));
    Tensor lse_a(lse_a_array, input("lse_a", bit(QUIRE_F32)));
    Tensor output_b(output_b_array, input("output_b", kActivations));
    Tensor lse_b(lse_b_array, input("lse_b", bit(QUIRE_F32)));
    output_a.require_rank(3, "[n, H, Dv]");
    const int64_t tokens = output_a.shape(0), heads = output_a.shape(1);
    nb::object output = new_array(output_a.type(), {tokens, heads, output_a.shape(2)});
    nb::object lse = new_array(QUIRE_F32, {tokens, heads});
    Tensor output_tensor(output, in_place("output", kActivations));
    Tensor lse_tensor(lse, in_place("lse", bit(QUIRE_F32)));
    {
        nb::gil_scoped_release unlocked;
        check(quire_merge_states(context.handle(), output_a, lse_a, output_b, lse_b, output_tensor,
                                 lse_tensor));
    }
    return nb::make_tuple(output, lse);
}

}  // namespace

void bind_merge_states(nb::module_& module) {
    define(module, "merge_states", merge_states, kDoc, arg("output_a"), arg("lse_a"), arg("output_b"),
           arg("lse_b"), nb::kw_only(), arg("context") = nb::none());
}

}  // namespace quire_python
