// Softmax of a block of scores with a running maximum and sum (log2 units).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Rows of scores.
struct SoftmaxKey {
    const Target* target;
    ScoreKey scores;
    // Probabilities are relative to the block's largest: weights of words are made of them.
    bool of_block = false;

    std::string name() const {
        return "decode_softmax" + scores.name() + (of_block ? "_of_block" : "") + "_" + target->name;
    }
};
Status generate_softmax(const SoftmaxKey& key, std::vector<uint8_t>* code);  // void(const SoftmaxArgs*)
// Query rows in the lanes. Without `masked`, every row sees every key of the tile.
struct TileSoftmaxKey {
    const Target* target;
    ScoreKey scores;
    int vecs;  // of query rows
    bool masked;
    Products probabilities =
        Products::floats;  // what they are rounded to: words, bytes by another kernel, bfloats here
    // A maximum that is larger than before becomes kHeadroom more (args.h: RelativeTops): the next tiles
    // raise it seldom, and products then leave the sums as they are.
    bool goes_above = false;

    bool bfloats() const { return probabilities == Products::bfloats; }
    std::string name() const {
        return "tile_softmax_w" + std::to_string(vecs) + scores.name() + (masked ? "_masked" : "") +
               products_name(probabilities) + (goes_above ? "_above_" : "_") + target->name;
    }
};
Status generate_tile_softmax(const TileSoftmaxKey& key,
                             std::vector<uint8_t>* code);  // void(const TileSoftmaxArgs*)

}  // namespace quire::jit
