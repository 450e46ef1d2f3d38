// quire._quire: the C API as Python functions. The package `quire` gives them their public names.
#include <nanobind/nanobind.h>

#include "python/src/context.h"
#include "python/src/error.h"
#include "python/src/operators.h"
#include "python/src/output.h"

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
    bind_context(module);
    bind_attention(module);
    bind_append(module);
    bind_merge_states(module);
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
