// Decode over values in blocks of tokens: f32 scales, and weights, which are probabilities * scales.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Whether weights hold the scales. Of words and bytes always; of numbers a weight is loaded for each query
// row and vector where groups are small, where to scale the values once for all rows is an instruction a
// vector.
bool token_weights_fold(const RowKey& values);

Status generate_token_scales(const RowKey& key, std::vector<uint8_t>* code);      // void(const ScalesArgs*)
Status generate_token_weights(const RowKey& values, std::vector<uint8_t>* code);  // void(const WeightsArgs*)
// Of bytes (jit/weights_bytes.h).
Status generate_token_weights_bytes(const RowKey& values, std::vector<uint8_t>* code);

}  // namespace quire::jit
