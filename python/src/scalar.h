// Python numbers, or 0-d arrays of any library, as C numbers.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

#include "quire/quire.h"

namespace quire_python {

namespace nb = nanobind;

int64_t to_int64(nb::handle object, const char* name);
int32_t to_int32(nb::handle object, const char* name);
int32_t to_int32(int64_t value, const char* name);
float to_float(nb::handle object, const char* name);
bool to_bool(nb::handle object, const char* name);

// A softmax scale: None is 0, which the C API takes for 1 / sqrt(head size). A 0 given by the caller is
// refused, because it would silently mean the same.
float to_softmax_scale(nb::handle object, const char* name);

// "highest", "high" or "medium".
quire_precision to_precision(nb::handle object);

}  // namespace quire_python
