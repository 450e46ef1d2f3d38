// The two products with query rows in the lanes: S^T = K Q^T and O^T += V^T P^T, on packed tiles. The element
// of K or V is the broadcast operand, so neither is transposed. Of f32, or of bfloat16 numbers (precision
// `medium`), whose lanes are pairs: two elements of a key, or one element of two values.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// A line asked for with so many products is some 10 bytes a nanosecond.
constexpr int kMostOfALine = 64;

// dim is D, vecs the panel's width. key_stride: floats, or pairs, from one packed key to the next.
struct TileKey {
    const Target* target;
    int dim;
    int key_stride;
    int vecs;
    Products products = Products::floats;  // or bfloats
    int of_a_line = kMostOfALine;          // of products, while which the next tile's lines are asked for

    bool bfloats() const { return products == Products::bfloats; }
    int numbers_a_lane() const { return bfloats() ? 2 : 1; }
};

Status generate_tile_qk(const TileKey& key, std::vector<uint8_t>* code);  // void(const TileQkArgs*)
Status generate_tile_pv(const TileKey& key,
                        std::vector<uint8_t>* code);  // void(const TilePvArgs*); dim is Dv

}  // namespace quire::jit
