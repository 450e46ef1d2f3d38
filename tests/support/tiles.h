// The kernels with query rows in the lanes, as src/attend_tiles.cc strings them together: pack a tile, then
// scores, softmax and values of a panel; every array of exactly the length that jit/args.h states, registers
// poisoned.
#pragma once
#include <string>

#include "jit/kernels.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {

struct TileSetup {
    const Target* target;
    RowShape keys, values;
    int vecs;
    jit::ScoreKey scores;
    bool masked;
    jit::Products products = jit::Products::floats;  // others: where the formats allow
    int few = 0;                                     // so many query rows (make_few_kernels)
    std::string name() const {
        return std::string(target->name) + " k:" + format_name(keys.format) + " D" +
               std::to_string(keys.dim) + " v:" + format_name(values.format) + " Dv" +
               std::to_string(values.dim) + " vecs " + std::to_string(vecs) + scores.name() +
               (masked ? " masked" : "") + jit::products_name(products) +
               (few > 0 ? " few " + std::to_string(few) : "");
    }
};

// Results are right, whatever registers and scratch held before. True where values stayed in the rows of the
// cache as they have no negative scale (PackKernels::value_lists).
bool check_tiles(const TileSetup& setup);

}  // namespace quire::test
