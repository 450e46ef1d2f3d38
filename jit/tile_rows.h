// Rows of numbers into columns, query rows in the lanes, and back: queries on their way in, outputs on their
// way out.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// type: of the rows, F32, F16 or BF16; dim: of a row, D or Dv.
Status generate_tile_rows(const Target& target, quire_type type, int dim,
                          std::vector<uint8_t>* code);  // void(const TileRowsArgs*)
Status generate_tile_columns(const Target& target, quire_type type, int dim,
                             std::vector<uint8_t>* code);  // void(const TileColumnsArgs*)

}  // namespace quire::jit
