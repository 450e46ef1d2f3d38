// One file for each operator; each adds its Python function to a module.
#pragma once
#include <nanobind/nanobind.h>

namespace quire_python {

// An argument. None gets as far as the operator, whose message names the argument.
inline auto arg(const char* name) { return nanobind::arg(name).none(); }

void bind_attention(nanobind::module_& module);
void bind_append(nanobind::module_& module);
void bind_merge_states(nanobind::module_& module);
void bind_pmx_dynamic(nanobind::module_& module);
void bind_pmx_static(nanobind::module_& module);
void bind_pmx_attention(nanobind::module_& pmx, nanobind::module_& dynamic_batching);
void bind_pmx_key_value_cache(nanobind::module_& pmx, nanobind::module_& dynamic_batching);
void bind_directml(nanobind::module_& module);
void bind_mindspore(nanobind::module_& module);

}  // namespace quire_python
