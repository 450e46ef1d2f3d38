// The decode kernels one by one, as src/attend_rows.cc strings them together: every array of exactly the
// length that jit/args.h states and against a guard page, every cache row against one of its own, registers
// poisoned.
#pragma once
#include <string>

#include "jit/kernels.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {

struct DecodeSetup {
    const Target* target;
    RowShape keys, values;
    int rows;
    jit::ScoreKey scores;
    jit::Products products = jit::Products::floats;  // where the formats allow
    std::string name() const {
        return std::string(target->name) + " k:" + format_name(keys.format) + " D" +
               std::to_string(keys.dim) + " v:" + format_name(values.format) + " Dv" +
               std::to_string(values.dim) + " rows " + std::to_string(rows) + scores.name() +
               products_name(products);
    }
};

// Results are right, the same whatever registers and scratch held before, and wherever rows lie.
void check_decode(const DecodeSetup& setup);

}  // namespace quire::test
