// A row of the output from its weighted sum of values. void(const FinishArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_finish(const Target& target, quire_type type, int dim, std::vector<uint8_t>* code);

}  // namespace quire::jit
