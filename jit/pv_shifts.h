// Decode: output rows += probabilities * value rows of a block, whose codes are taken out of the dwords of a
// row by shifts, which other pipes do than products and permutations.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

bool takes_shifts(const RowKey& values);

Status generate_pv_shifts(const RowKey& key, std::vector<uint8_t>* code);  // void(const PvArgs*)

}  // namespace quire::jit
