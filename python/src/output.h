// New NumPy arrays for results.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>

#include "quire/quire.h"

namespace quire_python {

namespace nb = nanobind;

// Once, when the module is loaded.
void import_numpy();

// An array of that type (F32, F16 or BF16) with undefined contents. bfloat16 needs the package ml_dtypes;
// throws quire.Error where that is not installed.
nb::object new_array(quire_type type, std::initializer_list<int64_t> shape);

}  // namespace quire_python
