#include "jit/vtune.h"

#ifdef QUIRE_VTUNE
#include <jitprofiling.h>

namespace quire::jit {

bool has_vtune() { return true; }

void tell_vtune(const Code& code) {
    if (iJIT_IsProfilingActive() != iJIT_SAMPLING_ON) return;
    iJIT_Method_Load method = {};
    method.method_id = iJIT_GetNewMethodID();
    method.method_name = const_cast<char*>(code.name.c_str());
    method.method_load_address = const_cast<void*>(static_cast<const void*>(code.memory.entry()));
    method.method_size = unsigned(code.code_size);
    iJIT_NotifyEvent(iJVM_EVENT_TYPE_METHOD_LOAD_FINISHED, &method);
}

}  // namespace quire::jit

#else

namespace quire::jit {

bool has_vtune() { return false; }
void tell_vtune(const Code&) {}

}  // namespace quire::jit

#endif
