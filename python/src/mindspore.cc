// quire.mindspore: what python/quire/mindspore.py is built on.
#include <nanobind/stl/string.h>

#include <string>

#include "python/src/context.h"
#include "python/src/operators.h"
#include "python/src/output.h"
#include "python/src/run.h"
#include "python/src/scalar.h"
#include "python/src/tensor.h"

namespace quire_python {

namespace {

using Desc = quire_mindspore_multi_head_attention_desc;

quire_type to_type(nb::handle object, const char* name) {
    const char* text = PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8(object.ptr()) : "";
    if (text && std::string(text) == "float32") return QUIRE_F32;
    if (text && std::string(text) == "float16") return QUIRE_F16;
    PyErr_Clear();
    fail(name, std::string("is ") + nb::repr(object).c_str() + ": must be float32 or float16");
}

// Names as Python has them: dense1.weight for dense1_weight.
[[noreturn]] void fail_in_python(const Error& error) {
    std::string text = error.what();
    for (const char* suffix : {"_weight", "_bias"})
        for (size_t at = text.find(suffix); at != std::string::npos; at = text.find(suffix, at))
            text[at] = '.';
    throw Error(text);
}

// The packed layer.
class Layer {
public:
    Layer(nb::kwargs attributes, nb::handle context_object) : context_object_(nb::borrow(context_object)) {
        Desc desc = default_desc<Desc, quire_mindspore_multi_head_attention_desc_init>();
        const auto integer = [&](const char* name, int32_t* to) { *to = to_int32(attributes[name], name); };
        integer("batch_size", &desc.batch_size);
        integer("src_seq_length", &desc.src_seq_length);
        integer("tgt_seq_length", &desc.tgt_seq_length);
        integer("hidden_size", &desc.hidden_size);
        integer("num_heads", &desc.num_heads);
        integer("parallel_config", &desc.parallel_config);
        desc.hidden_dropout_rate = to_float(attributes["hidden_dropout_rate"], "hidden_dropout_rate");
        desc.attention_dropout_rate =
            to_float(attributes["attention_dropout_rate"], "attention_dropout_rate");
        desc.compute_dtype = to_type(attributes["compute_dtype"], "compute_dtype");
        desc.softmax_compute_type = to_type(attributes["softmax_compute_type"], "softmax_compute_type");
        desc.param_init_type = to_type(attributes["param_init_type"], "param_init_type");
        desc.use_past = to_bool(attributes["use_past"], "use_past");
        desc.precision = to_precision(attributes["precision"]);
        const auto parameter = [&](const char* name) {
            return Tensor(attributes[name], input(name, kHalfOrFloat));
        };
        const Tensor weights[] = {parameter("dense1_weight"), parameter("dense2_weight"),
                                  parameter("dense3_weight"), parameter("projection_weight")};
        const Tensor biases[] = {parameter("dense1_bias"), parameter("dense2_bias"), parameter("dense3_bias"),
                                 parameter("projection_bias")};
        desc.dense1_weight = weights[0], desc.dense1_bias = biases[0];
        desc.dense2_weight = weights[1], desc.dense2_bias = biases[1];
        desc.dense3_weight = weights[2], desc.dense3_bias = biases[2];
        desc.projection_weight = weights[3], desc.projection_bias = biases[3];
        desc_ = desc;
        make_plan(desc);
        // The arrays are the caller's, and packed.
        desc_.dense1_weight = desc_.dense1_bias = desc_.dense2_weight = desc_.dense2_bias = nullptr;
        desc_.dense3_weight = desc_.dense3_bias = desc_.projection_weight = desc_.projection_bias = nullptr;
    }

    nb::tuple call(nb::handle query_array, nb::handle key_array, nb::handle value_array,
                   nb::handle mask_array, nb::handle key_past_array, nb::handle value_past_array,
                   nb::handle length_array, nb::handle is_first_iteration, nb::handle training,
                   nb::handle seed, nb::handle step, nb::handle present) {
        Tensor query(query_array, input("query_tensor", kHalfOrFloat));
        Tensor key(key_array, input("key_tensor", kHalfOrFloat));
        Tensor value(value_array, input("value_tensor", kHalfOrFloat));
        Tensor mask(mask_array, optional_input("attention_mask", kHalfOrFloat));
        Tensor key_past(key_past_array, optional_input("key_past", bit(QUIRE_F16)));
        Tensor value_past(value_past_array, optional_input("value_past", bit(QUIRE_F16)));
        Tensor length(length_array, optional_input("batch_valid_length", bit(QUIRE_INT32)));

        quire_mindspore_multi_head_attention_args args{};
        args.struct_size = sizeof args;
        args.is_first_iteration = to_bool(is_first_iteration, "is_first_iteration");
        args.training = to_bool(training, "training");
        args.dropout_seed = to_int64(seed, "seed");
        args.dropout_step = to_int64(step, "step");
        // The layer is right: these are no larger than what the caller must give, or the call fails.
        const int64_t B = desc_.batch_size, T = desc_.tgt_seq_length, H = desc_.num_heads,
                      hidden = desc_.hidden_size;
        const int64_t S = desc_.use_past && !args.is_first_iteration ? 1 : desc_.src_seq_length;
        const bool wanted = to_bool(present, "present");
        nb::object output = query.rank() == 2 ? new_array(query.type(), {B * S, hidden})
                                              : new_array(query.type(), {B, S, hidden});
        nb::object key_present = wanted ? new_array(desc_.compute_dtype, {B, H, hidden / H, T}) : nb::none();
        nb::object value_present =
            wanted ? new_array(desc_.compute_dtype, {B, H, T, hidden / H}) : nb::none();
        Tensor output_tensor(output, in_place("output", kHalfOrFloat));
        Tensor key_present_tensor(key_present, optional_in_place("layer_present_0", kHalfOrFloat));
        Tensor value_present_tensor(value_present, optional_in_place("layer_present_1", kHalfOrFloat));
        args.query_tensor = query;
        args.key_tensor = key;
        args.value_tensor = value;
        args.attention_mask = mask;
        args.key_past = key_past;
        args.value_past = value_past;
        args.batch_valid_length = length;
        args.output = output_tensor;
        args.layer_present_0 = key_present_tensor;
        args.layer_present_1 = value_present_tensor;
        run(context(), plan_, args, quire_mindspore_multi_head_attention,
            quire_prepare_mindspore_multi_head_attention);
        return nb::make_tuple(output, nb::make_tuple(key_present, value_present));
    }

    std::string explain() const { return check(quire_plan_explain(plan_.get())); }

private:
    Context& context() { return Context::of(context_object_); }

    void make_plan(const Desc& desc) {
        quire_plan* plan = nullptr;
        quire_status status;
        quire_context* handle = context().handle();
        {
            nb::gil_scoped_release unlocked;
            status = quire_mindspore_multi_head_attention_plan(handle, &desc, &plan);
        }
        try {
            check(status);
        } catch (const Error& error) {
            fail_in_python(error);
        }
        plan_ = Plan(plan, [](const quire_plan* p) { quire_plan_destroy(const_cast<quire_plan*>(p)); });
    }

    nb::object context_object_;
    Desc desc_{};
    Plan plan_;
};

}  // namespace

void bind_mindspore(nb::module_& module) {
    nb::class_<Layer>(module, "Layer", "A packed layer, see quire.mindspore.MultiHeadAttention.")
        .def(
            "__init__",
            [](Layer* self, nb::handle context, nb::kwargs attributes) {
                new (self) Layer(attributes, context);
            },
            arg("context"), nb::arg("attributes"))
        .def("__call__", &Layer::call, arg("query_tensor"), arg("key_tensor"), arg("value_tensor"),
             arg("attention_mask"), arg("key_past"), arg("value_past"), arg("batch_valid_length"),
             nb::kw_only(), arg("is_first_iteration"), arg("training"), arg("seed"), arg("step"),
             arg("present"))
        .def("explain", &Layer::explain);
}

}  // namespace quire_python
