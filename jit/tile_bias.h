// Rows of an additive mask into columns, query rows in the lanes, and added to scores. void(const
// TileBiasArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// type: of the mask, F32, F16 or BF16.
Status generate_tile_bias(const Target& target, quire_type type, std::vector<uint8_t>* code);

}  // namespace quire::jit
