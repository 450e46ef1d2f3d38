// Decode: probabilities and the scales of the values become one weight, of integer dot products or, where
// that is less work than to scale all values, of floats.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Whether floats are so. A weight costs two instructions and a store, and there is one for each query row and
// group; a scaled value costs one instruction.
bool folds_scales(const RowKey& values);

Status generate_weights(const RowKey& values, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
