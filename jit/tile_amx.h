// The products of jit/tile_products.h of bfloat16 numbers by AMX, whose tiles take them as they are packed:
// of S^T = K Q^T keys are the rows of one and pairs of the query those of the other, of O^T += V^T P^T
// elements of the values, once packing has turned blocks of them (jit/pack_amx.h).
#pragma once
#include <vector>

#include "jit/tile_products.h"

namespace quire::jit {

Status generate_tile_qk_amx(const TileKey& key, std::vector<uint8_t>* code);
Status generate_tile_pv_amx(const TileKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
