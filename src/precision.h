// Where `high` and `medium` run on integer words and bytes (jit/word_loader.h, jit/byte_loader.h) and where
// they gain nothing by it.
#pragma once
#include "jit/kernel_key.h"
#include "src/problem.h"

namespace quire {

// Of decode kernels: by format, target, head size and the rows that share a key.
jit::Products key_products(const jit::RowKey& keys, quire_precision precision);
jit::Products value_products(const jit::RowKey& values, quire_precision precision);
// Of decode, both sides: those, or tiles of AMX.
void set_products(jit::RowKey* keys, jit::RowKey* values, quire_precision precision);
// Of tiles, the kernels with query rows in the lanes.
jit::Products key_tile_products(const jit::RowKey& keys, quire_precision precision);
jit::Products value_tile_products(const jit::RowKey& values, quire_precision precision);

// Of few query rows (most_few_rows): what multiplies them, vectors also where the target has tiles of AMX,
// for which they are too few to be worth packing.
jit::RowKey few_key(jit::RowKey key);
// Of their values; floats: there are kernels for these at `highest` alone.
jit::Products few_value_products(const jit::RowKey& values, quire_precision precision);

// Most query rows of decode; more are tiles' (of 8 or 16 rows a vector), or most_few_rows'. Integer products
// of large heads read so much of the query for each key that with many rows it does not stay in L1 beside
// them.
int most_decode_rows(const AttentionSpec& spec, const Target& target);
// Most query rows of those beyond decode's that are one vector of the lanes with values in the lanes, too
// (few_value_products); 0: none do. Both sides of the cache are rows of codes then: blocks of tokens would
// have to be taken apart for each tile.
int most_few_rows(const AttentionSpec& spec, const Target& target);
// Most query rows that decode takes beside those of tiles, and beside its own most.
struct RestRows {
    int of_tiles = 0, of_decode = 0;
};
// As far as decode is quicker for them than one vector of tiles more (docs/performance.md, "Rows that are
// left").
RestRows most_rest_rows(const AttentionSpec& spec, const Target& target);

// A line for the plan's notes: what runs at which precision; empty for `highest`.
std::string precision_note(const AttentionSpec& spec, const Target& target);

}  // namespace quire
