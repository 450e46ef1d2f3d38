// Query rows as the products of keys take them where these are not of floats: rounded in the lanes.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// keys: their format, and products that are not floats. void(const TileQueryArgs*)
Status generate_tile_query(const RowKey& keys, std::vector<uint8_t>* code);
// The same of RowKey::query_bytes().
Status generate_tile_query_bytes(const RowKey& keys, std::vector<uint8_t>* code);

// Of two bytes and three, on targets with 512 bits.
Status generate_tile_query_digits(const RowKey& keys, std::vector<uint8_t>* code);

}  // namespace quire::jit
