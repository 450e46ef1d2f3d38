// quire._quire: the C API as Python functions. The package `quire` gives them their public names.
#include <nanobind/nanobind.h>

#include "python/src/context.h"
#include "python/src/error.h"
#include "python/src/operators.h"
#include "python/src/output.h"
#include "python/src/run.h"
#include "python/src/tensor.h"

namespace {

// For tests: where the library would read or write this array.
uintptr_t data_pointer(nanobind::handle array, bool writable) {
    using namespace quire_python;
    const TypeSet types = kRows | bit(QUIRE_INT64) | bit(QUIRE_INT32) | bit(QUIRE_BOOL);
    const Tensor tensor(array, writable ? in_place("array", types) : input("array", types));
    return reinterpret_cast<uintptr_t>(tensor.data());
}

// An array of bfloat16 as NumPy's int16, a view of the same memory, for producers whose bfloat16 NumPy cannot
// import. Another type is an error.
nanobind::object bfloat16_bits(nanobind::object array, const char* name) {
    using namespace quire_python;
    const Tensor tensor(array, input(name, bit(QUIRE_BF16)));
    size_t shape[QUIRE_MAX_RANK];
    int64_t strides[QUIRE_MAX_RANK];
    for (int32_t i = 0; i < tensor.rank(); ++i) {
        shape[i] = size_t(tensor.shape(i));
        strides[i] = tensor.stride(i);
    }
    return nb::cast(
        nb::ndarray<nb::numpy, nb::ro, int16_t>(tensor.data(), size_t(tensor.rank()), shape, array, strides));
}

}  // namespace

NB_MODULE(_quire, module) {
    using namespace quire_python;
    module.doc() = "quire's C API. Use the package quire.";
    module.attr("__version__") = quire_version();
    nb::exception<Error> error(module, "Error", PyExc_ValueError);
    error.attr("__module__") = "quire";
    error.doc() =
        "A call broke a rule. The message names the argument, its value and the rule; nothing was written.";

    // A Context that a module or a cache holds at exit is no defect, and the library prints nothing.
    nanobind::set_leak_warnings(false);
    import_numpy();
    module.def("_data_pointer", data_pointer);
    module.def("_bfloat16_bits", bfloat16_bits);
    bind_context(module);
    bind_predict(module);
    bind_attention(module);
    bind_append(module);
    bind_rotate(module);
    bind_merge_states(module);
    bind_repack(module);
    bind_cache_memory(module);
    nb::module_ pmx = module.def_submodule("pmx", "OpenPPL PMX operators.");
    nb::module_ dynamic_batching = pmx.def_submodule("dynamic_batching", "Operators over ragged batches.");
    bind_pmx_dynamic(dynamic_batching);
    bind_pmx_static(pmx);
    bind_pmx_attention(pmx, dynamic_batching);
    bind_pmx_key_value_cache(pmx, dynamic_batching);
    nb::module_ directml = module.def_submodule("directml", "Operators of DirectML.");
    bind_directml(directml);
    nb::module_ mindspore = module.def_submodule("mindspore", "Layers of MindSpore.");
    bind_mindspore(mindspore);
}
