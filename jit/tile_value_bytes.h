// Values of tiles as signed bytes and weights as unsigned ones (precision `medium`): four keys a dot product.
// Weights are relative to the largest of kWeightRun keys: of 128 keys' they would add an error of more than
// `medium` allows.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Codes of 8 bits or fewer, panels of one group, and a processor that has the dot products and the registers;
// or INT4 with AVX2.
bool has_tile_value_bytes(const RowKey& key);

// Of what their weights are made: pairs of bfloat16 probabilities, or else float32 ones.
bool takes_bfloat_pairs(const RowKey& key);

Status generate_tile_byte_weights(const RowKey& key, std::vector<uint8_t>* code);  // as generate_tile_weights
Status generate_tile_pv_bytes(const RowKey& key, std::vector<uint8_t>* code);      // void(const TilePvArgs*)
// Of few query rows, `rows` of them in one vector.
Status generate_tile_pv_byte_rows(const RowKey& key, std::vector<uint8_t>* code);  // void(const TilePvArgs*)
// The same of values that are not packed, whose scales are none of them negative (jit/tile_pv_byte_lists.cc).
bool has_tile_pv_byte_lists(const RowKey& key);
Status generate_tile_pv_byte_lists(const RowKey& key, std::vector<uint8_t>* code);  // void(const TilePvArgs*)

}  // namespace quire::jit
