// Workloads with names of their own: decode, prefill and append over all formats, and those that goals are
// about.
#pragma once
#include <vector>

#include "bench/workload.h"

namespace bench {

std::vector<Workload> named_workloads();

}  // namespace bench
