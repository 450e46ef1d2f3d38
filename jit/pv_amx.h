// Decode by tiles of AMX: output rows += weights of digits * signed bytes of value rows of a block
// (jit/weights_amx.h).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_pv_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const PvArgs*)

}  // namespace quire::jit
