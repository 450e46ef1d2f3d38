// Scores of keys that are bytes by queries of two or three of them, on targets with 512 bits
// (jit/tile_bytes.h).
#pragma once
#include <vector>

#include "jit/kernel_key.h"
#include "src/status.h"

namespace quire::jit {

Status generate_tile_qk_digits(const RowKey& key, std::vector<uint8_t>* code);  // void(const TileQkArgs*)

}  // namespace quire::jit
