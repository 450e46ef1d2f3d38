// Decode at `highest`: output rows += weights of three digits * bytes of four value rows of a block
// (jit/weights_fours.h).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_pv_fours(const RowKey& key, std::vector<uint8_t>* code);  // void(const PvArgs*)

}  // namespace quire::jit
