// Decode: output rows += probabilities * value rows of a block. void(const PvArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_pv(const RowKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
