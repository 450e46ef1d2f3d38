// How often a workload executes each instruction, found by calls that are small enough to be stepped through.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "bench/workload.h"

namespace bench {

// What counts are of: of decode a key and kv head that is read, of prefill a query row (of a token and head).
double units_of(const Workload& workload);
const char* unit_words(const Workload& workload);

struct UnitCounts {
    std::map<uintptr_t, double> of;  // by the instruction's address
    std::string why_not;             // there are none; empty: there are
};
// Of one sequence and kv head, by one thread. Takes seconds.
UnitCounts counts_a_unit(const Workload& workload);

// Decode of as many keys of one kv head (where heads interleave, of all) as second-level caches hold, by one
// thread.
Workload near_of(const Workload& workload);

// Workloads with the same have the same counts.
std::string counted_name(const Workload& workload);

}  // namespace bench
