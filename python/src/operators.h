// One file for each operator; each adds its Python function to a module.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

namespace quire_python {

// An argument. None gets as far as the operator, whose message names the argument.
inline auto arg(const char* name) { return nanobind::arg(name).none(); }

inline std::string in_signature(const nanobind::kw_only&, int) { return "*"; }
template <typename Argument>
auto in_signature(const Argument& argument, int) -> decltype(argument.value, std::string()) {
    return std::string(argument.name_) + "=" + nanobind::repr(argument.value).c_str();
}
template <typename Argument>
std::string in_signature(const Argument& argument, long) {
    return argument.name_;
}

// Adds a function whose documentation begins with its signature as one would write it in Python: names and
// defaults. (nanobind's own calls every argument an object, or None.)
template <typename Function, typename... Arguments>
void define(nanobind::module_& module, const char* name, Function function, const char* doc,
            const Arguments&... arguments) {
    std::string signature;
    ((signature += (signature.empty() ? "" : ", ") + in_signature(arguments, 0)), ...);
    signature = std::string("def ") + name + "(" + signature + ")";
    module.def(name, function, arguments..., nanobind::sig(signature.c_str()), doc);
}

void bind_attention(nanobind::module_& module);
void bind_append(nanobind::module_& module);
void bind_rotate(nanobind::module_& module);
void bind_merge_states(nanobind::module_& module);
void bind_repack(nanobind::module_& module);
void bind_cache_memory(nanobind::module_& module);
void bind_pmx_dynamic(nanobind::module_& module);
void bind_pmx_static(nanobind::module_& module);
void bind_pmx_attention(nanobind::module_& pmx, nanobind::module_& dynamic_batching);
void bind_pmx_key_value_cache(nanobind::module_& pmx, nanobind::module_& dynamic_batching);
void bind_directml(nanobind::module_& module);
void bind_mindspore(nanobind::module_& module);

}  // namespace quire_python
