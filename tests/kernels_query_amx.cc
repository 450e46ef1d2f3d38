// The kernel that rounds a query row to the columns of tiles of AMX (jit/qk_amx.h): against digits made in
// another way, all rows of tiles that they share, with arrays of exactly the documented length.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "jit/kernels.h"
#include "jit/qk_amx.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/rounded_query.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

struct Columns {
    Columns(const jit::RowKey& key, const std::vector<std::vector<float>>& rows, Flush flush)
        : form(key), written(key, form.plane_bytes(), form.query_bytes(), rows, flush) {}

    // The numbers of all rows, [rows][parts][part_bytes], out of their digits; all else is 0.
    std::vector<int> numbers(const GuardedBuffer& of) const {
        std::vector<int> all(size_t(form.rows * form.parts * form.part_bytes));
        for (int plane = 0; plane < form.planes(); ++plane)
            for (int step = 0; step < int(form.steps.size()); ++step) {
                const jit::KeyAmx::Chunk& chunk = form.chunks[size_t(form.steps[size_t(step)].chunk)];
                for (int byte = 0; byte < chunk.bytes; ++byte)
                    for (int lane = 0; lane < form.lanes(); ++lane) {
                        const int digit = digit_of(step, plane, byte, lane % form.together);
                        const int value = of.as<int8_t>()[form.tile_at(plane, step) +
                                                          byte / 4 * form.lane_bytes() + lane * 4 + byte % 4];
                        if (lane / form.together >= form.rows) continue;  // nobody writes it
                        if (digit < 0) {
                            EXPECT_EQ(value, 0) << "step " << step << " byte " << byte << " lane " << lane;
                            continue;
                        }
                        const int at = form.part_of(chunk, byte) * form.part_bytes + form.at_of(chunk, byte);
                        all[size_t(lane / form.together * form.parts * form.part_bytes + at)] +=
                            value * (1 << 8 * (form.digits - 1 - digit));
                    }
            }
        return all;
    }
    // That of a byte which a row's column has; below 0: none.
    int digit_of(int step, int plane, int byte, int column) const {
        const auto [set, chunk] = form.steps[size_t(step)];
        for (const jit::KeyAmx::Column& own :
             form.columns_of(set, form.group_of(form.chunks[size_t(chunk)], byte)))
            if (own.at == column) return plane + own.digit;
        return -1;
    }

    void check(const RoundedQuery& wanted) const {
        written.check(numbers(written.bytes), numbers(wanted.query), wanted);
    }

    const jit::KeyAmx form;
    const TileQuery written;
};

template <typename Check>
void for_each_key(const Check& check) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no AMX";
    int count = 0;
    for (const RowShape& shape : row_shapes())
        for (const jit::Products products :
             {jit::Products::two_digit_tiles, jit::Products::three_digit_tiles, jit::Products::scaled_tiles})
            for (const int rows : {1, 3, 4, 16}) {
                if (!can_be(shape, best_target(), products)) continue;
                const jit::RowKey key{&best_target(), shape.format, shape.dim, rows, products};
                SCOPED_TRACE(key.name("query_amx"));
                check(key);
                ++count;
            }
    EXPECT_GT(count, 0);
}

TEST(KernelsQuery, QuickTiles) {
    for_each_key([](const jit::RowKey& key) {
        for (const Flush flush : {Flush::end, Flush::begin}) {
            std::vector<std::vector<float>> rows;
            for (int r = 0; r < key.rows; ++r) rows.push_back(uneven_row(key.dim, uint64_t(r) + 1));
            std::vector<float> changed = padded_rows(rows, key.padded());
            const RoundedQuery wanted = rounded_query(key, key.rows, changed.data(), flush);
            Columns(key, rows, flush).check(wanted);
        }
    });
}

// Digits stand side by side where there is room, and take fewer products and sums: of four query rows over
// nibbles all three of them, or the lowest apart. Of many rows chunks of both parts have fewer groups.
TEST(KernelsQuery, QuickMixedDigits) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no AMX";
    struct Wanted {
        int group, rows;
        jit::Products products;
        int sets, products_of_sixteen;
    };
    const Wanted forms[] = {
        {32, 4, jit::Products::three_digit_tiles, 3, 4},  {64, 4, jit::Products::three_digit_tiles, 2, 2},
        {128, 3, jit::Products::three_digit_tiles, 1, 2}, {32, 4, jit::Products::two_digit_tiles, 2, 2},
        {128, 8, jit::Products::two_digit_tiles, 1, 2},   {32, 16, jit::Products::two_digit_tiles, 0, 8},
        {16, 16, jit::Products::two_digit_tiles, 0, 16}};
    for (const Wanted& of : forms) {
        const quire_format format = {QUIRE_INT4, of.group, QUIRE_F16};
        const jit::KeyAmx form({&best_target(), format, 128, of.rows, of.products});
        EXPECT_EQ(int(form.mixed.size()), of.sets) << "groups of " << of.group << ", rows " << of.rows;
        EXPECT_EQ(form.planes() * int(form.steps.size()), of.products_of_sixteen) << "groups of " << of.group;
        EXPECT_TRUE(form.is_standard());
    }
}

// What is not a number, or has none for its size, is seen in the row's factor and in no other's.
TEST(KernelsQuery, QuickPoisonOfTiles) {
    for_each_key([](const jit::RowKey& key) {
        for (const float number : {NAN, -INFINITY}) {
            std::vector<std::vector<float>> rows(size_t(key.rows), uneven_row(key.dim, 2));
            rows[size_t(key.rows / 2)][size_t(key.dim - 1)] = number;
            const Columns got(key, rows, Flush::end);
            for (int r = 0; r < key.rows; ++r)
                ASSERT_EQ(std::isnan(got.written.factors.as<float>()[r]), r == key.rows / 2)
                    << number << " row " << r;
        }
    });
}

}  // namespace
}  // namespace quire::test
