// The two products with query rows in the lanes: S^T = K Q^T and O^T += V^T P^T, on packed tiles. The element
// of K or V is the broadcast operand, so neither is transposed.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// dim is D, vecs the panel's width. key_stride: floats from one packed key to the next.
struct TileKey {
    const Target* target;
    int dim;
    int key_stride;
    int vecs;
};

Status generate_tile_qk(const TileKey& key, std::vector<uint8_t>* code);  // void(const TileQkArgs*)
Status generate_tile_pv(const TileKey& key,
                        std::vector<uint8_t>* code);  // void(const TilePvArgs*); dim is Dv

}  // namespace quire::jit
