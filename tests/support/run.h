// Runs cases through the public C API, in every way that a caller can.
#pragma once
#include <string>
#include <vector>

#include "src/target.h"
#include "tests/support/tensors.h"

namespace quire::test {

// Targets of this machine up to QUIRE_TARGET, slowest first; `portable` is the first.
const std::vector<const Target*>& targets();
// Those with generated code.
std::vector<const Target*> jit_targets();
std::vector<const Target*> targets_with(bool Target::*feature);  // of these
const Target& best_target();

// Where a call runs. slices > 0: prepared, and run by so many threads of the test's own; else by quire's own.
struct Way {
    std::string target = best_target().name;
    int threads = 1;  // 1 is inline
    int slices = 0;
    std::string name() const;
};

// A context for a target and a number of threads; made once, kept until the end.
quire_context* context_of(const std::string& target, int threads);

struct Outcome {
    std::vector<uint8_t> output_bytes, lse_bytes;  // of all rows, without gaps
    std::vector<float> output, lse;                // [n, H, Dv], [n, H]
    bool operator==(const Outcome& other) const {
        return output_bytes == other.output_bytes && lse_bytes == other.lse_bytes;
    }
};

// Runs the case on tensors as they are. Adds a failure to the test where a call fails, or something was
// written beside the output's elements.
Outcome run(Tensors& tensors, const Way& way);
// A plan of the case; the caller destroys it. Null, with a test failure, where there is none.
quire_plan* make_plan(const Case& c, const Way& way);

// Runs a prepared run on `count` threads, with a barrier of mutex and condition variable between them.
void run_slices(int count, quire_run* run);

}  // namespace quire::test
