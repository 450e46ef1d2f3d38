// Decode: probabilities and the scales of the values become one weight, of integer dot products or, where
// that is less work than to scale all values, of floats.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Whether floats are so. A weight costs two instructions and a store, and there is one for each query row and
// group; a scaled value costs one instruction.
bool folds_scales(const RowKey& values);

// Values of words that are scaled themselves, once for all query rows, where groups are so small that a
// weight of each would take longer. 128 keys' sums of their products with probabilities are int32: both are
// words of 12 bits and a sign, relative to the block's largest probability and to the group's largest scale.
struct ScaledWords {
    static constexpr float kLargest = 4095;

    explicit ScaledWords(const RowKey& key)
        : rows(key.rows), up(is_of_nibbles(row_format(key.format)) ? 12 : 8) {}

    // Bytes of WeightsArgs::weights: probabilities as int16 [rows][kBlock], and behind them scales, in the
    // order of words' weights.
    static constexpr int kRowBytes = 2 * kBlock;
    int scales_at() const { return rows * kRowBytes; }
    // What a product of a code and a scale is to be multiplied by to be that of their numbers: the code
    // goes `up` to a word's upper end, and the product loses 15 bits.
    float unit() const { return float(1 << (15 - up)); }
    // AttentionPlan::weight_stride, that has room for them, and for factors, which are as words'.
    static int weight_stride(RowKey key, int most_rows) {
        key.rows = most_rows;
        const int bytes = ScaledWords(key).scales_at() + kRowBytes * key.weight_stride();
        const int of_bytes = (bytes + most_rows * kRowBytes - 1) / (most_rows * kRowBytes);
        return std::max(of_bytes, key.weight_stride());
    }

    const int rows, up;
};
bool has_scaled_words(const RowKey& values);  // whatever their products

// Whether the kernel of weights, of whatever kind, takes the scales of adjacent rows as the cache has them,
// or of blocks of tokens.
bool reads_value_scales(const RowKey& values);

Status generate_weights(const RowKey& values, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
