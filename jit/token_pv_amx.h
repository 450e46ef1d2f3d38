// Decode over values in blocks of tokens by tiles of AMX: output rows += weights of digits * codes
// (jit/weights_amx.h, jit/pv_amx_tiles.h).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_token_pv_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const PvArgs*)

}  // namespace quire::jit
