// Kernels of decode that are generated for every group and number of rows, also for targets that can't be run
// here.
#include <gtest/gtest.h>

#include "jit/kernels.h"
#include "jit/weights.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

void check_generated(const Target& target, const RowShape& shape) {
    for (int rows = 1; rows <= jit::kMaxDecodeRows; ++rows) {
        const jit::RowKey floats{&target, shape.format, shape.dim, rows, jit::Products::floats};
        for (const jit::Products products : {jit::Products::floats, jit::Products::three_bytes}) {
            jit::RowKey values = floats;
            if (jit::has_value_fours(values)) values.products = products;
            jit::DecodeKernels of_floats;
            const Status made = make_decode_kernels(test_code_cache(), floats, values, {false, false, false},
                                                    jit::Placement::adjacent, &of_floats);
            EXPECT_TRUE(made.ok()) << made.message();
        }
        for (const jit::Products products :
             {jit::Products::words, jit::Products::bytes, jit::Products::two_bytes,
              jit::Products::three_bytes, jit::Products::scaled_words}) {
            jit::RowKey keys{&target, shape.format, shape.dim, rows, jit::Products::words};
            jit::RowKey values = keys;
            if (products == jit::Products::bytes && jit::has_value_bytes(values)) values.products = products;
            if (products == jit::Products::scaled_words && jit::has_scaled_words(values))
                values.products = products;
            else if (can_be(shape, target, products))
                keys.products = products;
            jit::DecodeKernels kernels;
            const Status status = make_decode_kernels(test_code_cache(), keys, values, {false, false, false},
                                                      jit::Placement::adjacent, &kernels);
            EXPECT_TRUE(status.ok()) << status.message();
        }
    }
}

void check_every_group(std::initializer_list<quire_type> types, std::initializer_list<int> dims, int step) {
    int count = 0;
    const Target* targets = target_table(&count);
    for (const Target* target = targets; target < targets + count; ++target)
        for (const quire_type type : types)
            for (const int dim : dims)
                for (int group = step; target->jit() && group <= dim; group += step)
                    if (dim % group == 0) check_generated(*target, {quantised(type, group, QUIRE_F16), dim});
}

// Groups of any size fit the registers, wherever in the row two chunks of words share one, on targets that
// can't be run here too.
TEST(KernelsGenerated, EveryGroupIsGenerated) {
    check_every_group({QUIRE_INT8, QUIRE_INT4}, {36, 132, 176, 220, 252}, 4);
}
// The same of values that shifts take (jit/pv_shifts.h).
TEST(KernelsGenerated, EveryGroupOfShiftsIsGenerated) {
    check_every_group({QUIRE_INT8, QUIRE_INT4}, {64, 192, 384}, 4);
}
TEST(KernelsGenerated, EveryGroupOfBlocksIsGenerated) {
    check_every_group({QUIRE_INT8_B16, QUIRE_INT4_B16}, {80, 128, 200, 240, 512}, 8);
}

}  // namespace
}  // namespace quire::test
