// What VTune's collector is to ittapi (its INTEL_JIT_PROFILER64): writes each kernel that it is told of to
// $FAKE_VTUNE_LOG, as NAME SIZE.
#include <jitprofiling.h>

#include <cstdio>
#include <cstdlib>

extern "C" int Initialize() { return iJIT_SAMPLING_ON; }

extern "C" int NotifyEvent(iJIT_JVM_EVENT event, void* data) {
    if (event != iJVM_EVENT_TYPE_METHOD_LOAD_FINISHED) return 1;
    const auto* method = static_cast<const iJIT_Method_Load*>(data);
    std::FILE* log = std::fopen(std::getenv("FAKE_VTUNE_LOG"), "a");
    if (log == nullptr) return 0;
    std::fprintf(log, "%s %u\n", method->method_name, method->method_size);
    std::fclose(log);
    return 1;
}
