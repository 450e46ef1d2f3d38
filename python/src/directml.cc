// quire.directml
#include <cmath>
#include <cstring>
#include <string>

#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/output.h"
#include "python/src/run.h"
#include "python/src/scalar.h"
#include "python/src/tensor.h"

namespace quire_python {

namespace {

constexpr const char* kDoc = R"(DirectML's DML_MULTIHEAD_ATTENTION1_OPERATOR_DESC.

Attention over separate or stacked queries, keys and values, with bias, mask, relative position bias and past. Names are
those of the document in snake_case, without `Tensor`. All arrays but `mask` are float32, or all float16. B sequences;
H = query_head_count, Hk = key_value_head_count; D, Dv head sizes of keys and values; S queries, N new keys and `past`
earlier ones, T = past + N. Arrays may have up to 5 dimensions, those before the ones written here of length 1.

    scores = scale * q . k + relative_position_bias, plus mask_filter_value where the mask says padding

Args:
    query: [B, S, H * D].
    key, value: [B, N, Hk * D] and [B, N, Hk * Dv]. None, with a past: the past is all keys (cross attention).
    stacked_query_key: [B, S, H, 2, D], in place of query and key; H is Hk.
    stacked_key_value: [B, N, Hk, 2, D], in place of key and value.
    stacked_query_key_value: [B, S, H, 3, D], in place of all three; H is Hk.
    bias: [H * D + Hk * D + Hk * Dv], added to queries, new keys and new values. It is in the presents too.
    mask: int32, of the shape that mask_type says. "BOOLEAN": [B or 1, H or 1, S or 1, T or 1], 0 is padding.
        "KEY_SEQUENCE_LENGTH": [1, B], padding from that key on. "KEY_SEQUENCE_END_START": [2, B], ends (exclusive)
        and starts, padding outside. "KEY_QUERY_SEQUENCE_LENGTH_START_END": [3 * B + 2], of which the first B are key
        lengths and the rest changes nothing. Keys count past and new ones together.
    relative_position_bias: [B or 1, H or 1, S or 1, T or 1], added to the scores; 4 or 5 dimensions.
    past_key, past_value: [B, Hk, past, D] and [B, Hk, past, Dv], before the new keys and values.
    past_sequence_lengths: [B] whole numbers, int32 or of the others' type: how much of each sequence's past counts,
        where pasts are padded to one length. New keys follow it directly, and the presents are zero after them.
    query_head_count, key_value_head_count: H and Hk, which divides it; None: H.
    scale: of the scores; None: 1 / sqrt(D).
    mask_filter_value: added to the scores of padding. It hides nothing by itself: a row of padding alone is the
        softmax of its own scores, as far as float32 keeps them beside it.
    mask_type: as above; None or "NONE" without a mask.
    present: whether the presents are wanted.
    precision: "highest", "high" or "medium".
    context: a quire.Context; None: the default one.

Returns:
    (output, present_key, present_value), new NumPy arrays [B, S, H * Dv], [B, Hk, T, D] and [B, Hk, T, Dv], with as many
    leading dimensions of length 1 as query (past_key) has. The presents are None unless wanted.

Raises quire.Error, naming the argument. The GIL is released while it runs.)";

struct MaskName {
    const char* name;
    quire_directml_mask_type type;
};
constexpr MaskName kMaskNames[] = {
    {"NONE", QUIRE_DIRECTML_MASK_NONE},
    {"KEY_SEQUENCE_LENGTH", QUIRE_DIRECTML_MASK_KEY_SEQUENCE_LENGTH},
    {"KEY_SEQUENCE_END_START", QUIRE_DIRECTML_MASK_KEY_SEQUENCE_END_START},
    {"KEY_QUERY_SEQUENCE_LENGTH_START_END", QUIRE_DIRECTML_MASK_KEY_QUERY_SEQUENCE_LENGTH_START_END},
    {"BOOLEAN", QUIRE_DIRECTML_MASK_BOOLEAN},
};

quire_directml_mask_type to_mask_type(nb::handle object) {
    if (object.is_none()) return QUIRE_DIRECTML_MASK_NONE;
    const char* given = PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8(object.ptr()) : nullptr;
    for (const MaskName& mask : kMaskNames)
        if (given && std::strcmp(mask.name, given) == 0) return mask.type;
    PyErr_Clear();
    std::string rest = std::string("is ") + nb::repr(object).c_str() + ": must be None";
    for (const MaskName& mask : kMaskNames) rest += std::string(", '") + mask.name + "'";
    fail("mask_type", rest);
}

// Length of a dimension counted from the end; 0 where there is none, and the library then says what is wrong.
int64_t from_end(const Tensor& tensor, int32_t dimension) {
    if (!tensor.get() || tensor.rank() < dimension) return 0;
    return tensor.shape(tensor.rank() - dimension);
}

struct Inputs {
    const Tensor &query, &key, &value, &query_key, &key_value, &all, &past_key, &past_value;

    int64_t B() const { return query.get() ? from_end(query, 3) : from_end(queries(), 5); }
    int64_t S() const { return query.get() ? from_end(query, 2) : from_end(queries(), 4); }
    int64_t T() const {
        const int64_t added =
            key.get() ? from_end(key, 2) : from_end(key_value.get() ? key_value : queries(), 4);
        const bool has_new = key.get() || key_value.get() || !query.get();
        return from_end(past_key, 2) + (has_new ? added : 0);
    }
    int64_t head_size(int32_t heads) const {
        return query.get() ? per_head(query, "query", heads, "query_head_count") : from_end(queries(), 1);
    }
    int64_t value_head_size(int32_t heads) const {
        if (value.get()) return per_head(value, "value", heads, "key_value_head_count");
        if (key_value.get() || all.get()) return from_end(key_value.get() ? key_value : all, 1);
        return from_end(past_value, 1);
    }

private:
    const Tensor& queries() const { return query_key.get() ? query_key : all; }

    static int64_t per_head(const Tensor& tensor, const char* name, int32_t heads, const char* heads_name) {
        const int64_t size = from_end(tensor, 1);
        if (heads > 0 && size % heads != 0)
            fail(name, "has a last dimension of " + std::to_string(size) + ": must be a multiple of " +
                           heads_name + ", " + std::to_string(heads));
        return heads > 0 ? size / heads : size;
    }
};

// In Python the fields have no `_tensor`.
[[noreturn]] void fail_in_python(const Error& error) {
    std::string text = error.what();
    const std::string suffix = "_tensor";
    for (size_t at = text.find(suffix); at != std::string::npos; at = text.find(suffix, at))
        text.erase(at, suffix.size());
    throw Error(text);
}

// `array` with dimensions of length 1 before its own, so that it has `rank`.
nb::object with_rank(nb::object array, const Tensor& tensor, int32_t rank) {
    if (array.is_none() || rank <= tensor.rank()) return array;
    nb::list shape;
    for (int32_t i = tensor.rank(); i < rank; ++i) shape.append(1);
    for (int32_t i = 0; i < tensor.rank(); ++i) shape.append(tensor.shape(i));
    return array.attr("reshape")(shape);
}

nb::tuple multihead_attention1(nb::handle query_array, nb::handle key_array, nb::handle value_array,
                               nb::handle query_key_array, nb::handle key_value_array, nb::handle all_array,
                               nb::handle bias_array, nb::handle mask_array, nb::handle relative_array,
                               nb::handle past_key_array, nb::handle past_value_array,
                               nb::handle lengths_array, nb::handle query_head_count,
                               nb::handle key_value_head_count, nb::handle scale,
                               nb::handle mask_filter_value, nb::handle mask_type, nb::handle present,
                               nb::handle precision, nb::handle context_object) {
    Context& context = Context::of(context_object);
    Tensor query(query_array, optional_input("query", kHalfOrFloat));
    Tensor key(key_array, optional_input("key", kHalfOrFloat));
    Tensor value(value_array, optional_input("value", kHalfOrFloat));
    Tensor query_key(query_key_array, optional_input("stacked_query_key", kHalfOrFloat));
    Tensor key_value(key_value_array, optional_input("stacked_key_value", kHalfOrFloat));
    Tensor all(all_array, optional_input("stacked_query_key_value", kHalfOrFloat));
    Tensor bias(bias_array, optional_input("bias", kHalfOrFloat));
    Tensor mask(mask_array, optional_input("mask", bit(QUIRE_INT32)));
    Tensor relative(relative_array, optional_input("relative_position_bias", kHalfOrFloat));
    Tensor past_key(past_key_array, optional_input("past_key", kHalfOrFloat));
    Tensor past_value(past_value_array, optional_input("past_value", kHalfOrFloat));
    Tensor lengths(lengths_array, optional_input("past_sequence_lengths", kHalfOrFloat | bit(QUIRE_INT32)));
    if (!query.get() && !query_key.get() && !all.get())
        fail("query", "is None: must be given without a stacked_query_key or stacked_query_key_value");

    const Inputs inputs{query, key, value, query_key, key_value, all, past_key, past_value};
    const Tensor& queries = query.get() ? query : query_key.get() ? query_key : all;
    auto desc = default_desc<quire_directml_multihead_attention1_desc,
                             quire_directml_multihead_attention1_desc_init>();
    desc.query_head_count = to_int32(query_head_count, "query_head_count");
    desc.key_value_head_count =
        key_value_head_count.is_none() ? 0 : to_int32(key_value_head_count, "key_value_head_count");
    const int32_t Hk = desc.key_value_head_count ? desc.key_value_head_count : desc.query_head_count;
    desc.head_size = to_int32(inputs.head_size(desc.query_head_count), "head_size");
    desc.value_head_size = to_int32(inputs.value_head_size(Hk), "value_head_size");
    const int64_t D = desc.head_size, Dv = desc.value_head_size ? desc.value_head_size : D;
    desc.scale = scale.is_none() ? 1 / std::sqrt(float(D)) : to_float(scale, "scale");
    desc.mask_filter_value = to_float(mask_filter_value, "mask_filter_value");
    desc.mask_type = to_mask_type(mask_type);
    desc.data_type = queries.type();
    desc.precision = to_precision(precision);
    const Plan plan = [&] {
        try {
            return context.directml_multihead_attention1.find_or_make(context.handle(), desc);
        } catch (const Error& error) {
            fail_in_python(error);
        }
    }();

    // The descriptor is right: these have no more elements than what the caller gave, or the call fails.
    const bool wanted = to_bool(present, "present");
    const int64_t B = inputs.B(), T = inputs.T(), H = desc.query_head_count;
    nb::object output = new_array(queries.type(), {B, inputs.S(), H * Dv});
    nb::object present_key = wanted ? new_array(queries.type(), {B, Hk, T, D}) : nb::none();
    nb::object present_value = wanted ? new_array(queries.type(), {B, Hk, T, Dv}) : nb::none();
    Tensor output_tensor(output, in_place("output", kHalfOrFloat));
    Tensor present_key_tensor(present_key, optional_in_place("present_key", kHalfOrFloat));
    Tensor present_value_tensor(present_value, optional_in_place("present_value", kHalfOrFloat));

    quire_directml_multihead_attention1_args args{};
    args.struct_size = sizeof args;
    args.query_tensor = query;
    args.key_tensor = key;
    args.value_tensor = value;
    args.stacked_query_key_tensor = query_key;
    args.stacked_key_value_tensor = key_value;
    args.stacked_query_key_value_tensor = all;
    args.bias_tensor = bias;
    args.mask_tensor = mask;
    args.relative_position_bias_tensor = relative;
    args.past_key_tensor = past_key;
    args.past_value_tensor = past_value;
    args.past_sequence_lengths_tensor = lengths;
    args.output_tensor = output_tensor;
    args.output_present_key_tensor = present_key_tensor;
    args.output_present_value_tensor = present_value_tensor;
    try {
        run(context, plan, args, quire_directml_multihead_attention1,
            quire_prepare_directml_multihead_attention1);
    } catch (const Error& error) {
        fail_in_python(error);
    }
    const int32_t past_rank = past_key.get() ? past_key.rank() : 0;
    return nb::make_tuple(with_rank(output, output_tensor, query.get() ? query.rank() : 0),
                          with_rank(present_key, present_key_tensor, past_rank),
                          with_rank(present_value, present_value_tensor, past_rank));
}

}  // namespace

void bind_directml(nb::module_& module) {
    define(module, "multihead_attention1", multihead_attention1, kDoc, arg("query") = nb::none(),
           arg("key") = nb::none(), arg("value") = nb::none(), arg("stacked_query_key") = nb::none(),
           arg("stacked_key_value") = nb::none(), arg("stacked_query_key_value") = nb::none(),
           arg("bias") = nb::none(), arg("mask") = nb::none(), arg("relative_position_bias") = nb::none(),
           arg("past_key") = nb::none(), arg("past_value") = nb::none(),
           arg("past_sequence_lengths") = nb::none(), nb::kw_only(), arg("query_head_count"),
           arg("key_value_head_count") = nb::none(), arg("scale") = nb::none(),
           arg("mask_filter_value") = -10000.0, arg("mask_type") = nb::none(), arg("present") = true,
           arg("precision") = "highest", arg("context") = nb::none());
}

}  // namespace quire_python
