#include "python/src/context.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/operators.h"
#include "python/src/scalar.h"

namespace quire_python {

namespace {

constexpr int32_t kMaxSlices = 1024;

// Never destroyed: at exit its plans would outlive the thread pool that they run on.
Context& default_context() {
    static Context* context = new Context;
    return *context;
}

constexpr const char* kContextDoc =
    R"(Target, threads and generated code of calls that are given it as `context`.

Args:
    target: cap of the instruction set: "avx512_vnni_bf16_amx", "avx512_vnni_bf16", "avx512_vnni_vbmi",
        "avx512_vnni", "avx512", "avx2_vnni", "avx2" or "portable". None: the environment variable QUIRE_TARGET, else all that the machine has.
    num_threads: of quire's own thread pool. 0: QUIRE_NUM_THREADS, else all processors of this process.
        1: everything runs in the calling thread.
    slices: where not 0, a call starts so many threads of its own and splits the work by the C API's slices, as
        a foreign thread pool would. Slow (threads are started in every call): for tests of such an embedding.

May be used from many threads at once. Results have the same bits for every num_threads and slices.
Raises quire.Error for an unknown target or a number out of range.)";

}  // namespace

Context::Context(nb::handle target, nb::handle num_threads, nb::handle slices) {
    quire_context_options options;
    std::memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    std::string name;
    if (!target.is_none()) {
        if (!nb::try_cast(target, name)) fail("target", "must be a str or None");
        options.target = name.c_str();
    }
    options.num_threads = to_int32(num_threads, "num_threads");
    slices_ = to_int32(slices, "slices");
    if (slices_ < 0 || slices_ > kMaxSlices)
        fail("slices", "is " + std::to_string(slices_) + ": must be 0.." + std::to_string(kMaxSlices));
    check(quire_context_create(&options, &handle_));
}

Context::~Context() { quire_context_destroy(handle_); }

Context& Context::of(nb::handle object) {
    if (object.is_none()) return default_context();
    Context* context = nullptr;
    if (!nb::try_cast(object, context, false) || !context) fail("context", "must be a quire.Context or None");
    return *context;
}

std::vector<std::string> Context::explain(bool json) {
    std::vector<std::string> texts;
    attention.explain_into(json, &texts);
    append.explain_into(json, &texts);
    rotate.explain_into(json, &texts);
    pmx_dynamic_multi_head_cache_attention.explain_into(json, &texts);
    pmx_dynamic_multi_head_attention.explain_into(json, &texts);
    pmx_dynamic_key_value_cache.explain_into(json, &texts);
    pmx_multi_head_cache_attention.explain_into(json, &texts);
    pmx_multi_head_attention.explain_into(json, &texts);
    pmx_key_value_cache.explain_into(json, &texts);
    directml_multihead_attention1.explain_into(json, &texts);
    return texts;
}

void bind_context(nb::module_& module) {
    nb::class_<Context>(module, "Context", kContextDoc)
        .def(
            "__init__",
            [](Context* self, nb::handle target, nb::handle num_threads, nb::handle slices) {
                new (self) Context(target, num_threads, slices);
            },
            nb::arg("target") = nb::none(), nb::arg("num_threads") = 0, nb::kw_only(), nb::arg("slices") = 0,
            nb::sig("def __init__(self, target=None, num_threads=0, *, slices=0)"))
        .def_prop_ro(
            "target_name", [](Context& self) { return check(quire_target_name(self.handle())); },
            "The instruction-set tier that this context uses, at most the target asked for.")
        .def_prop_ro(
            "num_threads", [](Context& self) { return quire_num_threads(self.handle()); },
            "Threads of quire's own pool that a call may use.")
        .def_prop_ro(
            "slices", [](Context& self) { return self.slices(); },
            "Threads started by each call; 0: quire's own pool is used.")
        .def("explain", &Context::explain, nb::kw_only(), nb::arg("json") = false,
             "One text for each plan made so far: target, kernels, and why faster candidates declined; with\n"
             "json=True as JSON, see quire_plan_explain_json in quire.h.")
        .def("__repr__", [](Context& self) {
            return std::string("quire.Context(target='") + check(quire_target_name(self.handle())) +
                   "', num_threads=" + std::to_string(quire_num_threads(self.handle())) +
                   ", slices=" + std::to_string(self.slices()) + ")";
        });
    define(
        module, "target_name",
        [](nb::handle context) { return check(quire_target_name(Context::of(context).handle())); },
        "The instruction-set tier that calls use, \"avx2\" for example.\n\n"
        "Raises quire.Error where QUIRE_TARGET is not the name of one.",
        nb::arg("context") = nb::none());
    define(
        module, "num_threads",
        [](nb::handle context) { return quire_num_threads(Context::of(context).handle()); },
        "Threads of quire's own pool that a call may use.", nb::arg("context") = nb::none());
    define(
        module, "explain", [](nb::handle context, bool json) { return Context::of(context).explain(json); },
        "A list of texts, one for each plan made so far: target, kernels, and why faster candidates\n"
        "declined; with json=True as JSON, see quire_plan_explain_json in quire.h.",
        nb::arg("context") = nb::none(), nb::kw_only(), nb::arg("json") = false);
}

}  // namespace quire_python
