// Tiles of every format, width and score key.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "jit/tile_bytes.h"
#include "jit/tile_value_bytes.h"
#include "jit/tile_words.h"
#include "tests/support/run.h"
#include "tests/support/tiles.h"

namespace quire::test {
namespace {

void check_shapes(const std::vector<const Target*>& on, size_t step, jit::Products products) {
    const std::vector<RowShape> shapes = row_shapes();
    for (const Target* target : on)
        for (size_t i = 0; i < shapes.size(); i += step)
            check_tiles({target,
                         shapes[i],
                         shapes[(i * 5 + 2) % shapes.size()],
                         1 + int(i % jit::kMaxPanelVecs),
                         {i % 2 == 0, i % 3 == 0, i % 5 == 0},
                         i % 4 < 2,
                         products});
}

TEST(KernelsTiles, EveryShape) { check_shapes(jit_targets(), 1, jit::Products::floats); }
TEST(KernelsTiles, EveryShapeOfWords) { check_shapes(jit_targets(), 1, jit::Products::words); }
TEST(KernelsTiles, QuickShapes) { check_shapes({&best_target()}, 9, jit::Products::floats); }
TEST(KernelsTiles, QuickShapesOfWords) { check_shapes({&best_target()}, 9, jit::Products::words); }

std::vector<const Target*> bf16_targets() { return targets_with(&Target::bf16); }
std::vector<const Target*> vnni_targets() { return targets_with(&Target::vnni); }
TEST(KernelsTiles, EveryShapeOfBfloats) {
    if (bf16_targets().empty()) GTEST_SKIP() << "no dot products of bfloat16 here";
    check_shapes(bf16_targets(), 1, jit::Products::bfloats);
}
TEST(KernelsTiles, QuickShapesOfBfloats) {
    if (bf16_targets().empty()) GTEST_SKIP() << "no dot products of bfloat16 here";
    check_shapes(bf16_targets(), 9, jit::Products::bfloats);
}

TEST(KernelsTiles, EveryShapeOfBytes) { check_shapes(jit_targets(), 1, jit::Products::bytes); }
// Both sizes of codes in rows and in blocks, more chunks than one, parts of 8 to 128, a row of one group.
void check_shapes_of_bytes(const Target& target, jit::Products products) {
    const RowShape shapes[] = {{quantised(QUIRE_INT8, 32, QUIRE_F16), 160},
                               {quantised(QUIRE_INT4, 16, QUIRE_F32), 144},
                               {quantised(QUIRE_INT8, 24, QUIRE_F32), 72},
                               {quantised(QUIRE_INT4, 160, QUIRE_F16), 160},
                               {quantised(QUIRE_INT8, 8, QUIRE_F16), 8},
                               {quantised(QUIRE_INT8, 128, QUIRE_F16), 256},
                               {quantised(QUIRE_INT4, 64, QUIRE_F16), 192},
                               {plain_format(QUIRE_Q8_0), 96},
                               {plain_format(QUIRE_Q4_0), 160},
                               {plain_format(QUIRE_IQ4_NL), 160},
                               {plain_format(QUIRE_Q5_0), 96}};
    int vecs = 0;
    for (const RowShape& shape : shapes) {
        ASSERT_TRUE(jit::has_tile_key_bytes({&target, shape.format, shape.dim, 0}))
            << format_name(shape.format);
        check_tiles({&target,
                     shape,
                     shapes[size_t(vecs + 2) % std::size(shapes)],
                     1 + vecs % jit::kMaxPanelVecs,
                     {false, vecs % 2 == 0, false},
                     vecs % 2 != 0,
                     products});
        ++vecs;
    }
}
TEST(KernelsTiles, QuickShapesOfBytes) {
    if (vnni_targets().empty()) GTEST_SKIP() << "no 8-bit dot products here";
    check_shapes_of_bytes(*vnni_targets().back(), jit::Products::bytes);
}
// Codes of 4 bits, which AVX2 alone has products for.
TEST(KernelsTiles, QuickShapesOfWeighedBytes) {
    int vecs = 0;
    for (const RowShape& shape : {RowShape{quantised(QUIRE_INT4, 16, QUIRE_F32), 144},
                                  {quantised(QUIRE_INT4, 160, QUIRE_F16), 160},
                                  {quantised(QUIRE_INT4, 8, QUIRE_F16), 8},
                                  {quantised(QUIRE_INT4, 24, QUIRE_F16), 72},
                                  {quantised(QUIRE_INT4, 128, QUIRE_F16), 256},
                                  {plain_format(QUIRE_Q4_0), 160}})
        for (int i = 0; i < jit::kMaxPanelVecs; ++i, ++vecs) {
            const Target* const target = find_target("avx2");
            ASSERT_TRUE(jit::has_tile_key_bytes({target, shape.format, shape.dim, 0}));
            check_tiles({target,
                         shape,
                         shape,
                         1 + i,
                         {false, vecs % 2 == 0, false},
                         vecs % 3 != 0,
                         jit::Products::bytes});
        }
}

std::vector<const Target*> targets_of_digits() {
    std::vector<const Target*> list = vnni_targets();
    list.erase(
        std::remove_if(list.begin(), list.end(), [](const Target* t) { return t->vector_bits != 512; }),
        list.end());
    return list;
}
constexpr jit::Products kOfDigits[] = {jit::Products::two_bytes, jit::Products::three_bytes};
TEST(KernelsTiles, EveryShapeOfDigits) {
    if (targets_of_digits().empty()) GTEST_SKIP() << "no 8-bit dot products of 512 bits here";
    for (const jit::Products products : kOfDigits) check_shapes(targets_of_digits(), 1, products);
}
TEST(KernelsTiles, QuickShapesOfDigits) {
    if (targets_of_digits().empty()) GTEST_SKIP() << "no 8-bit dot products of 512 bits here";
    for (const jit::Products products : kOfDigits)
        check_shapes_of_bytes(*targets_of_digits().back(), products);
}

// Setups whose values stayed in the rows of the cache as they have no negative scale, of how many.
struct Lists {
    int taken = 0, of = 0;
};
// products: of keys and values, by turns. Each has few rows of whole passes and of others.
void check_few_rows(const std::vector<RowShape>& shapes, const std::vector<jit::Products>& products,
                    bool (*has_values)(const jit::RowKey&), Lists* lists = nullptr) {
    for (const Target* target : targets_of_digits())
        for (size_t i = 0; i < shapes.size(); ++i)
            for (const int rows : {1, 7, 8, 9, 13, 16}) {
                const RowShape& values = shapes[(i + 1) % shapes.size()];
                ASSERT_TRUE(has_values({target, values.format, values.dim, 0}));
                const bool odd = rows % 2 != 0;
                const bool taken = check_tiles({target,
                                                shapes[i],
                                                values,
                                                1,
                                                {odd, !odd, i % 3 == 0},
                                                odd == (i % 2 == 0),
                                                products[i % products.size()],
                                                rows});
                if (lists == nullptr || !target->vbmi) continue;
                lists->taken += taken;
                ++lists->of;
            }
}

// Values of few query rows stay where they are: rows of one pass and of two, groups of one step and of more,
// all sorts of codes.
TEST(KernelsTiles, QuickFewRows) {
    if (targets_of_digits().empty()) GTEST_SKIP() << "no 16-bit dot products of 512 bits here";
    check_few_rows({{quantised(QUIRE_INT8, 32, QUIRE_F16), 96},
                    {quantised(QUIRE_INT4, 32, QUIRE_F32), 128},
                    {quantised(QUIRE_INT8, 128, QUIRE_F16), 256},
                    {quantised(QUIRE_INT4, 64, QUIRE_F16), 64},
                    {plain_format(QUIRE_Q8_0), 64},
                    {plain_format(QUIRE_Q4_0), 160},
                    {plain_format(QUIRE_IQ4_NL), 160},
                    {plain_format(QUIRE_Q5_0), 160}},
                   {jit::Products::two_bytes, jit::Products::words}, jit::has_tile_pv_rows);
}

// The same as numbers, with keys of three digits: groups of one step and of more.
TEST(KernelsTiles, QuickFewRowsOfNumbers) {
    if (targets_of_digits().empty()) GTEST_SKIP() << "no 8-bit dot products of 512 bits here";
    check_few_rows({{quantised(QUIRE_INT8, 32, QUIRE_F16), 96},
                    {quantised(QUIRE_INT4, 32, QUIRE_F32), 128},
                    {quantised(QUIRE_INT8, 128, QUIRE_F16), 256},
                    {quantised(QUIRE_INT4, 64, QUIRE_F16), 64},
                    {quantised(QUIRE_INT8, 32, QUIRE_F16), 576},
                    {plain_format(QUIRE_Q8_0), 64},
                    {plain_format(QUIRE_Q4_0), 160},
                    {plain_format(QUIRE_IQ4_NL), 160},
                    {plain_format(QUIRE_Q5_0), 96}},
                   {jit::Products::three_bytes}, jit::has_tile_pv_number_rows);
}

// Values of bytes: panels in pairs and alone, the last one not full, groups of one panel and of more.
TEST(KernelsTiles, QuickFewRowsOfBytes) {
    if (targets_of_digits().empty()) GTEST_SKIP() << "no 8-bit dot products of 512 bits here";
    check_few_rows({{quantised(QUIRE_INT8, 32, QUIRE_F16), 96},
                    {quantised(QUIRE_INT4, 16, QUIRE_F32), 144},
                    {quantised(QUIRE_INT8, 72, QUIRE_F16), 72},
                    {quantised(QUIRE_INT8, 128, QUIRE_F16), 256},
                    {quantised(QUIRE_INT4, 160, QUIRE_F16), 160},
                    {plain_format(QUIRE_Q8_0), 96},
                    {plain_format(QUIRE_Q4_0), 160},
                    {plain_format(QUIRE_IQ4_NL), 160},
                    {plain_format(QUIRE_Q5_0), 96}},
                   {jit::Products::bytes}, jit::has_tile_value_bytes);
}

// The same where they may stay in the rows of the cache. About half of the setups have negative scales.
TEST(KernelsTiles, QuickFewRowsOfBytesInLists) {
    if (targets_of_digits().empty() || !targets_of_digits().back()->vbmi)
        GTEST_SKIP() << "no permutations of bytes here";
    const std::vector<RowShape> shapes = {
        {quantised(QUIRE_INT8, 32, QUIRE_F16), 96},   {quantised(QUIRE_INT4, 32, QUIRE_F32), 128},
        {quantised(QUIRE_INT8, 64, QUIRE_F16), 64},   {quantised(QUIRE_INT8, 32, QUIRE_F16), 576},
        {quantised(QUIRE_INT4, 160, QUIRE_F16), 160}, {quantised(QUIRE_INT4, 64, QUIRE_F16), 192},
        {quantised(QUIRE_INT8, 128, QUIRE_F16), 256}};
    Lists lists;
    check_few_rows(shapes, {jit::Products::bytes}, jit::has_tile_value_bytes, &lists);
    EXPECT_GT(lists.taken, lists.of / 4);
    EXPECT_LT(lists.taken, lists.of * 3 / 4);
}

TEST(KernelsTiles, EveryWidthAndScoreKey) {
    for (const Target* target : jit_targets())
        for (int vecs = 1; vecs <= jit::kMaxPanelVecs; ++vecs)
            for (int key = 0; key < 16; ++key)
                check_tiles({target,
                             {plain_format(QUIRE_F32), 20},
                             {plain_format(QUIRE_F16), 12},
                             vecs,
                             {(key & 1) != 0, (key & 2) != 0, (key & 4) != 0},
                             key >= 8});
}

}  // namespace
}  // namespace quire::test
