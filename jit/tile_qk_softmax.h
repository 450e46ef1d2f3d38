// QK and softmax of a tile in one kernel, where what softmax subtracts from scores is known before.
#pragma once
#include <vector>

#include "jit/tile_products.h"

namespace quire::jit {

// Whether sums of QK leave registers for softmax, which is then of use: of numbers, with 512 bits.
bool has_tile_qk_softmax(const TileKey& key);

// As generate_tile_qk, with TileQkArgs::relative, of keys that all rows see: leaves probabilities as
// TileSoftmaxArgs has them, of bfloats pairs. void(const TileQkArgs*)
Status generate_tile_qk_softmax(const TileKey& key, Products probabilities, std::vector<uint8_t>* code);

}  // namespace quire::jit
