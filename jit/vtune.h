// Tells Intel VTune what generated code is called, by its JIT profiling API
// (https://github.com/intel/ittapi), where the library was configured with QUIRE_VTUNE.
#pragma once
#include "jit/code_cache.h"

namespace quire::jit {

bool has_vtune();
// Where VTune does not look on, nothing happens.
void tell_vtune(const Code& code);

}  // namespace quire::jit
