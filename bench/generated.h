// The code that quire generated in this process, read from what it writes for profilers: perf's map and the
// listings of QUIRE_JIT_DUMP.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace bench {

struct GeneratedKernel {
    std::string name;
    uintptr_t address = 0, size = 0;
};

// Makes quire write both, for contexts that are made from here on; the files go when the program ends. Where
// the environment asks for them already it is left as it is, and so are the files.
void watch_generated_code();

// All kernels there are now, by address.
std::map<uintptr_t, GeneratedKernel> generated_kernels();

// Offset -> "vaddps ymm0, ymm1, ymm2"; none where quire was built without Zydis. Each listing is read once.
const std::map<uintptr_t, std::string>& instructions_of(const GeneratedKernel& kernel);

}  // namespace bench
