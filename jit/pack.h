// Tiles for the kernels with query rows in the lanes: rows dequantised, turned into words or bytes, or
// dequantised and rounded to bfloat16, once for many query rows.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_pack_keys(const RowKey& key, std::vector<uint8_t>* code);    // void(const PackArgs*)
Status generate_pack_values(const RowKey& key, std::vector<uint8_t>* code);  // void(const PackArgs*)
// Whether they take PackArgs::ahead: so many lines a row.
constexpr int kLinesOfPackedRow = 1;
bool asks_ahead(const RowKey& key);
// Whether a key packed is the row as it is: numbers that products take, and nothing behind them.
bool is_packed_row(const RowKey& key);
// Of values as bytes (jit/tile_value_bytes.h): generate_pack_values is this for them.
Status generate_pack_value_bytes(const RowKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
