// The decode kernels one by one (tests/support/decode.h), over formats, head sizes and numbers of rows.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "jit/qk_fours.h"
#include "jit/weights_amx.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"
#include "tests/support/decode.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// Each shape as keys and, with another one, as values.
void check_shapes(const std::vector<const Target*>& on, size_t step, jit::Products products) {
    const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12};
    for (const Target* target : on) {
        std::vector<RowShape> shapes;
        for (const RowShape& shape : row_shapes())
            if (can_be(shape, *target, products)) shapes.push_back(shape);
        for (const RowShape& shape : token_shapes())
            if (can_be(shape, *target, products)) shapes.push_back(shape);
        for (size_t i = 0; i < shapes.size(); i += step)
            check_decode({target,
                          shapes[i],
                          shapes[(i * 7 + 3) % shapes.size()],
                          rows[i % 10],
                          {i % 2 == 0, i % 3 == 0, i % 5 == 0},
                          products});
    }
}

TEST(KernelsDecode, EveryShape) { check_shapes(jit_targets(), 1, jit::Products::floats); }
TEST(KernelsDecode, QuickShapes) { check_shapes({&best_target()}, 9, jit::Products::floats); }
TEST(KernelsDecode, EveryShapeOfWords) { check_shapes(jit_targets(), 1, jit::Products::words); }
TEST(KernelsDecode, EveryShapeOfBytes) { check_shapes(jit_targets(), 1, jit::Products::bytes); }
TEST(KernelsDecode, QuickShapesOfWords) { check_shapes({&best_target()}, 3, jit::Products::words); }
TEST(KernelsDecode, EveryShapeOfTwoBytes) { check_shapes(jit_targets(), 1, jit::Products::two_bytes); }
TEST(KernelsDecode, EveryShapeOfThreeBytes) { check_shapes(jit_targets(), 1, jit::Products::three_bytes); }
TEST(KernelsDecode, EveryShapeOfTiles) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no AMX";
    check_shapes({&best_target()}, 1, jit::Products::two_digit_tiles);
    check_shapes({&best_target()}, 1, jit::Products::three_digit_tiles);
    check_shapes({&best_target()}, 1, jit::Products::scaled_tiles);
}
TEST(KernelsDecode, QuickShapesOfDigits) {
    if (!jit::has_fours(quantised(QUIRE_INT8, 32, QUIRE_F16), best_target(), 2))
        GTEST_SKIP() << best_target().name << " takes no queries of two or three bytes";
    check_shapes({&best_target()}, 3, jit::Products::two_bytes);
    check_shapes({&best_target()}, 3, jit::Products::three_bytes);
}
TEST(KernelsDecode, EveryShapeOfScaledWords) { check_shapes(jit_targets(), 1, jit::Products::scaled_words); }
TEST(KernelsDecode, QuickShapesOfScaledWords) {
    check_shapes({&best_target()}, 3, jit::Products::scaled_words);
}
TEST(KernelsDecode, QuickShapesOfBytes) { check_shapes({&best_target()}, 3, jit::Products::bytes); }

// Values whose weights are bytes of a run of keys, and those of three digits in blocks of tokens: one set of
// groups and two, of which some are not full; odd numbers of rows, with two sets all.
TEST(KernelsDecode, EveryRowCountOfRunsAndDigits) {
    const std::map<int, int> groups = {{32, 32}, {64, 32}, {96, 32}, {128, 128}, {192, 32}, {256, 32}};
    bool any = false;
    for (const Target* target : jit_targets())
        for (const quire_type type : {QUIRE_INT8, QUIRE_INT4, QUIRE_Q8_0, QUIRE_Q4_0, QUIRE_IQ4_NL,
                                      QUIRE_Q5_0, QUIRE_Q4_1, QUIRE_Q5_1, QUIRE_INT8_B16, QUIRE_INT4_B16})
            for (const auto& [dim, group] : groups)
                for (int rows = 1; rows <= jit::kMaxDecodeRows; rows += dim == 256 ? 1 : 2) {
                    const RowShape shape = {
                        block_info(type) ? plain_format(type) : quantised(type, group, QUIRE_F16), dim};
                    const jit::RowKey key = {target, shape.format, dim, rows};
                    const bool runs = jit::has_value_runs(key),
                               digits =
                                   (token_block_info(type) || block_info(type)) && jit::has_value_fours(key);
                    any |= runs || digits;
                    if (runs) check_decode({target, shape, shape, rows, {}, jit::Products::bytes});
                    if (digits) check_decode({target, shape, shape, rows, {}, jit::Products::three_bytes});
                }
    if (!any) GTEST_SKIP() << "no target here has VNNI with vectors of 512 bits";
}

// Tiles of AMX, of values: one to four groups in a tile, the same in all tiles of a row or others, whole
// passes and parts of one. Blocks of tokens: of keys one round of sets and several, the last chunk whole or
// not.
TEST(KernelsDecode, EveryRowCountOfTiles) {
    const std::pair<int, int> of_bytes[] = {{16, 4},    {32, 8},   {48, 48},  {64, 32},   {72, 24},
                                            {80, 16},   {96, 48},  {96, 12},  {112, 112}, {128, 32},
                                            {128, 8},   {192, 96}, {192, 12}, {256, 64},  {512, 32},
                                            {576, 576}, {128, 16}, {576, 32}, {320, 8}},
                              of_nibbles[] = {{32, 8},   {64, 32},   {96, 24},   {128, 32}, {128, 8},
                                              {160, 80}, {192, 192}, {224, 112}, {256, 32}, {512, 64},
                                              {128, 16}, {576, 64},  {320, 8}},
                              of_tokens[] = {{64, 8},   {64, 64},  {80, 16},  {80, 80},
                                             {96, 32},  {96, 96},  {128, 8},  {128, 32},
                                             {176, 88}, {192, 96}, {256, 64}, {512, 512}};
    bool any = false;
    const auto check = [&](const Target* target, quire_type type, int dim, int group) {
        for (int rows = 1; rows <= jit::kMaxDecodeRows; ++rows) {
            const bool halves = rows % 2 == 1 || token_block_info(type) != nullptr;
            const RowShape shape = {quantised(type, group, halves ? QUIRE_F16 : QUIRE_F32), dim};
            for (const jit::Products products :
                 {jit::Products::two_digit_tiles, jit::Products::three_digit_tiles,
                  jit::Products::scaled_tiles}) {
                if (!jit::takes_value_amx({target, shape.format, dim, rows, products})) continue;
                any = true;
                check_decode({target, shape, shape, rows, {}, products});
            }
        }
    };
    for (const Target* target : jit_targets()) {
        for (const auto& [dim, group] : of_bytes) check(target, QUIRE_INT8, dim, group);
        for (const auto& [dim, group] : of_nibbles) check(target, QUIRE_INT4, dim, group);
        for (const auto& [dim, group] : of_tokens) {
            check(target, QUIRE_INT8_B16, dim, group);
            check(target, QUIRE_INT4_B16, dim, group);
        }
    }
    if (!any) GTEST_SKIP() << "no target here has AMX";
}

// Each number of rows has code of its own, by the registers that it takes.
TEST(KernelsDecode, EveryRowCount) {
    for (const Target* target : jit_targets())
        for (int rows = 1; rows <= jit::kMaxDecodeRows; ++rows)
            for (const RowShape& shape : {RowShape{plain_format(QUIRE_F32), 72},
                                          {plain_format(QUIRE_F16), 45},
                                          {quantised(QUIRE_INT8, 8, QUIRE_F16), 128},
                                          {quantised(QUIRE_INT8, 1, QUIRE_F32), 40},
                                          {quantised(QUIRE_INT8, 72, QUIRE_F16), 72},
                                          {quantised(QUIRE_INT8, 32, QUIRE_F16), 64},
                                          {quantised(QUIRE_INT8, 64, QUIRE_F32), 128},
                                          {quantised(QUIRE_INT8, 32, QUIRE_F16), 160},
                                          {quantised(QUIRE_INT4, 1, QUIRE_F32), 40},
                                          {quantised(QUIRE_INT4, 32, QUIRE_F16), 64},
                                          {quantised(QUIRE_INT4, 32, QUIRE_F16), 96},
                                          {quantised(QUIRE_INT4, 16, QUIRE_F16), 192},
                                          {quantised(QUIRE_INT4, 44, QUIRE_F32), 132},
                                          {plain_format(QUIRE_Q8_0), 128},
                                          {plain_format(QUIRE_Q4_0), 96},
                                          {plain_format(QUIRE_Q5_0), 96},
                                          {plain_format(QUIRE_Q4_1), 128},
                                          {plain_format(QUIRE_Q5_1), 64},
                                          {quantised(QUIRE_INT8_B16, 8, QUIRE_F16), 72},
                                          {quantised(QUIRE_INT8_B16, 576, QUIRE_F16), 576},
                                          {quantised(QUIRE_INT4_B16, 24, QUIRE_F16), 72},
                                          {quantised(QUIRE_INT4_B16, 32, QUIRE_F16), 128},
                                          {plain_format(QUIRE_IQ4_NL), 96}})
                for (const jit::Products products :
                     {jit::Products::floats, jit::Products::words, jit::Products::bytes,
                      jit::Products::two_bytes, jit::Products::three_bytes, jit::Products::scaled_words})
                    if (can_be(shape, *target, products))
                        check_decode({target, shape, shape, rows, {}, products});
}

TEST(KernelsDecode, EveryScoreKey) {
    for (const Target* target : jit_targets())
        for (int key = 0; key < 8; ++key)
            check_decode({target,
                          {plain_format(QUIRE_F32), 40},
                          {plain_format(QUIRE_F32), 24},
                          3,
                          {(key & 1) != 0, (key & 2) != 0, (key & 4) != 0}});
}

}  // namespace
}  // namespace quire::test
