#include "src/diagnostics.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "jit/vtune.h"

namespace quire {
namespace {

// "" where it is not set.
std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

Status read_verbose(int* verbose) {
    const std::string value = variable("QUIRE_VERBOSE");
    if (value != "" && value != "0" && value != "1" && value != "2")
        return invalid("QUIRE_VERBOSE is \"%s\": must be 0, 1 or 2", value.c_str());
    *verbose = value == "" ? 0 : value[0] - '0';
    return {};
}

Status read_perf(jit::PerfFormat* perf) {
    const std::string value = variable("QUIRE_PERF");
    if (value == "map")
        *perf = jit::PerfFormat::map;
    else if (value == "jitdump")
        *perf = jit::PerfFormat::jitdump;
    else if (value == "vtune" && jit::has_vtune())
        *perf = jit::PerfFormat::vtune;
    else if (value != "")
        return invalid(
            "QUIRE_PERF is \"%s\": must be map or jitdump%s", value.c_str(),
            jit::has_vtune() ? ", or vtune" : "; vtune needs a library that was configured with QUIRE_VTUNE");
    return {};
}

Status read_jit_dump(std::string* directory) {
    *directory = variable("QUIRE_JIT_DUMP");
    struct stat found;
    if (*directory != "" && (stat(directory->c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
                             access(directory->c_str(), W_OK | X_OK) != 0))
        return invalid("QUIRE_JIT_DUMP is \"%s\": must be a directory that can be written to",
                       directory->c_str());
    return {};
}

}  // namespace

Status read_diagnostics(Diagnostics* diagnostics) {
    QUIRE_TRY(read_verbose(&diagnostics->verbose));
    QUIRE_TRY(read_perf(&diagnostics->perf));
    return read_jit_dump(&diagnostics->jit_dump);
}

}  // namespace quire
