// What a context tells of its work, by environment variables that are read when it is made.
#pragma once
#include <string>

#include "jit/perf.h"

namespace quire {

struct Diagnostics {
    int verbose = 0;                               // QUIRE_VERBOSE: 1 a line a call, 2 also each plan
    jit::PerfFormat perf = jit::PerfFormat::none;  // QUIRE_PERF
    std::string jit_dump;                          // QUIRE_JIT_DUMP, a directory; empty: none
    bool watches_code() const { return perf != jit::PerfFormat::none || !jit_dump.empty(); }
};

Status read_diagnostics(Diagnostics* diagnostics);

}  // namespace quire
