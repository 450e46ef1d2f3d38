// Weighted sum of states, in order. void(const MergeArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// `dim` floats, a multiple of the target's lanes.
Status generate_merge(const Target& target, int dim, std::vector<uint8_t>* code);

}  // namespace quire::jit
