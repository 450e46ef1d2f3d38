// Kernels of tiles are generated for every format and group, on targets that can't be run here too.
#include <gtest/gtest.h>

#include "jit/kernels.h"
#include "jit/tile_value_bytes.h"
#include "jit/tile_words.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

void expect_generated(const jit::RowKey& key, const jit::RowKey& value) {
    jit::PackKernels pack;
    Status made = make_pack_kernels(test_code_cache(), key, value, &pack);
    EXPECT_TRUE(made.ok()) << key.name("pack") << ": " << made.message();
    jit::PanelKernels panel;
    made = make_panel_kernels(test_code_cache(), key, value, QUIRE_BF16, &panel);
    EXPECT_TRUE(made.ok()) << key.name("panel") << ": " << made.message();
    for (int vecs = 1; vecs <= jit::kMaxPanelVecs; ++vecs) {
        jit::TileKernels kernels;
        made = make_tile_kernels(test_code_cache(), key, value, {false, false, false}, vecs, &kernels);
        EXPECT_TRUE(made.ok()) << key.name("tile") << ": " << made.message();
    }
    const auto expect_few = [&](jit::Products products) {
        jit::RowKey few = value;
        few.products = products;
        for (int rows = 1; rows <= key.target->lanes(); ++rows) {
            jit::TileKernels kernels;
            made = make_few_kernels(test_code_cache(), key, few, {false, false, false}, rows, &kernels);
            EXPECT_TRUE(made.ok()) << key.name("few") << ": " << made.message();
        }
    };
    if (jit::has_tile_pv_rows(value)) expect_few(jit::Products::words);
    if (jit::has_tile_pv_number_rows(value)) expect_few(jit::Products::floats);
    if (jit::has_tile_value_bytes(value) && key.target->vector_bits == 512) expect_few(jit::Products::bytes);
}

// Groups of any size fit the registers.
TEST(KernelsTiles, EveryGroupIsGenerated) {
    int count = 0;
    const Target* targets = target_table(&count);
    for (const Target* target = targets; target < targets + count; ++target)
        for (const quire_type type : {QUIRE_INT8, QUIRE_INT4})
            for (const int dim : {4, 36, 132, 176, 576})
                for (int group = 4; target->jit() && group <= dim; group += 4) {
                    if (dim % group != 0) continue;
                    jit::RowKey key{target, quantised(type, group, QUIRE_F16), dim, 0}, value = key;
                    value.products = value_products(value, jit::Products::words);
                    for (const jit::Products products :
                         {jit::Products::words, jit::Products::bytes, jit::Products::two_bytes,
                          jit::Products::three_bytes}) {
                        key.products = key_products(key, products);
                        expect_generated(key, value);
                    }
                }
}

TEST(KernelsTiles, EveryShapeOfBfloatsIsGenerated) {
    int count = 0;
    const Target* targets = target_table(&count);
    for (const Target* target = targets; target < targets + count; ++target)
        for (const RowShape& shape : row_shapes()) {
            if (!target->bf16) continue;
            const jit::RowKey key{target, shape.format, shape.dim, 0, jit::Products::bfloats};
            expect_generated(key, key);
        }
}

}  // namespace
}  // namespace quire::test
