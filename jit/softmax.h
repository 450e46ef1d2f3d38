// Softmax of a block of scores with a running maximum and sum (log2 units).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Rows of scores: void(const SoftmaxArgs*).
Status generate_softmax(const Target& target, const ScoreKey& key, std::vector<uint8_t>* code);
// Query rows in the lanes, `vecs` vectors of them: void(const TileSoftmaxArgs*). Without `masked`, every row
// sees every key of the tile.
Status generate_tile_softmax(const Target& target, const ScoreKey& key, int vecs, bool masked,
                             std::vector<uint8_t>* code);

}  // namespace quire::jit
