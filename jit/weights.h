// Decode with integer dot products: probabilities and the scales of the values become one integer weight.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_weights(const RowKey& values, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
