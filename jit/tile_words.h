// The products of jit/tile_products.h as integer dot products of 16-bit words (precision `high`), and the
// weights that PV then takes. Keys name the format; `rows` is the panel's width in vectors.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Formats whose tiles can be words: sums of a group's products fit 32 bits; of values, a panel is of one
// group.
bool has_tile_key_words(const RowKey& key);
bool has_tile_value_words(const RowKey& key);

Status generate_tile_qk_words(const RowKey& key, std::vector<uint8_t>* code);  // void(const TileQkArgs*)
Status generate_tile_scales(const RowKey& key, std::vector<uint8_t>* code);    // void(const TileScalesArgs*)
Status generate_tile_weights(const RowKey& key, std::vector<uint8_t>* code);   // void(const TileWeightsArgs*)
Status generate_tile_pv_words(const RowKey& key, std::vector<uint8_t>* code);  // void(const TilePvArgs*)

// Of few query rows, `rows` of them in one vector: values are not packed. Whole steps of elements are of one
// group.
bool has_tile_pv_rows(const RowKey& key);
Status generate_tile_pv_rows(const RowKey& key, std::vector<uint8_t>* code);  // void(const TilePvArgs*)
// The same as numbers, at `highest` (jit/tile_pv_numbers.cc).
bool has_tile_pv_number_rows(const RowKey& key);
Status generate_tile_pv_number_rows(const RowKey& key,
                                    std::vector<uint8_t>* code);  // void(const TilePvArgs*)

}  // namespace quire::jit
