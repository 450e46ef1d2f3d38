// Scores as 8-bit dot products with query rows in the lanes (targets with VNNI, codes of 4 bits also with
// AVX2 alone): query rows are signed bytes (precision `medium`) or numbers of three of them (`highest`), keys
// unsigned codes (jit/byte_loader.h), the broadcast operand as in all tiles.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Formats whose tiles can be bytes on this target. Keys name the format; `rows` is the panel's width in
// vectors.
bool has_tile_key_bytes(const RowKey& key);
bool has_tile_key_two_bytes(const RowKey& key);
bool has_tile_key_three_bytes(const RowKey& key);

Status generate_tile_qk_bytes(const RowKey& key, std::vector<uint8_t>* code);  // void(const TileQkArgs*)

}  // namespace quire::jit
