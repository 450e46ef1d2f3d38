// Decode over values in blocks of tokens: f32 scales, and weights, which are probabilities * scales.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"
#include "src/token_blocks.h"

namespace quire::jit {

// Whether weights hold the scales. Of words and bytes always; of numbers a weight is loaded for each query
// row and vector where groups are small, where to scale the values once for all rows is an instruction a
// vector.
bool token_weights_fold(const RowKey& values);

// Of words (WeightsArgs::weights): in a block, of each two groups every two tokens of the first, then of the
// second. Scaled words have the scales alone like that (jit/weights.h), of one row.
//
// A vector of 16 elements may have those of two such groups, one in each half: in PV elements of both take
// turns (`lanes`), as then do their weights, which are one load.
struct TokenWords {
    static constexpr int kPairBytes = 2 * kBlockTokens * 2;

    explicit TokenWords(const RowKey& key) : pairs((key.groups() + 1) / 2) {}
    // Of tokens t and t + 1, an even t; of a block, or of all.
    static int at(int group, int token) {
        return group / 2 * kPairBytes + token / 2 * 8 + group % 2 * 4 + token % 2 * 2;
    }
    static std::vector<int> lanes() { return {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}; }
    static std::vector<uint32_t> elements() {  // the way back
        return {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
    }
    int block_bytes() const { return pairs * kPairBytes; }
    int weight_stride() const { return 2 * pairs; }  // AttentionPlan's
    int row_bytes() const { return weight_row_bytes(2 * weight_stride()); }

    const int pairs;
};

Status generate_token_scales(const RowKey& key, std::vector<uint8_t>* code);      // void(const ScalesArgs*)
Status generate_token_weights(const RowKey& values, std::vector<uint8_t>* code);  // void(const WeightsArgs*)
Status generate_token_weights_words(const RowKey& values, std::vector<uint8_t>* code);
// Of bytes (jit/weights_bytes.h).
Status generate_token_weights_bytes(const RowKey& values, std::vector<uint8_t>* code);

}  // namespace quire::jit
