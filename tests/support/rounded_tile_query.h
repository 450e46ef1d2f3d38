// Query rows in the lanes as the products of keys take them that are not of floats (jit/args.h: TileQkArgs).
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::test {

struct RoundedTileQuery {
    std::vector<uint32_t> lanes;
    std::vector<float> factors;  // of words and three bytes
};

// columns: [D][lanes], which become what the rounded ones stand for.
RoundedTileQuery round_tile_query(const jit::RowKey& key, float* columns, int lanes);

}  // namespace quire::test
