// The kernel that rounds a query row to lines of tiles of AMX for blocks of tokens (jit/token_qk_amx.h):
// against digits made in another way, all rows of lines beside each other, with arrays of exactly the
// documented length.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "jit/kernels.h"
#include "jit/token_qk_amx.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/rounded_query.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

using Form = jit::TokenKeyAmx;

struct Lines {
    Lines(const jit::RowKey& key, const std::vector<std::vector<float>>& rows, Flush flush)
        : form(key), written(key, form.plane_bytes(), form.query_bytes(), rows, flush) {}

    // The numbers of all rows, [rows][dim], out of their digits; all else is 0.
    std::vector<int> numbers(const GuardedBuffer& of) const {
        std::vector<int> all(size_t(form.rows * form.dim));
        for (int i = 0; i < int(form.sets.size()); ++i)
            for (int chunk = 0; chunk < form.sets[size_t(i)].chunks; ++chunk) add(of, i, chunk, &all);
        return all;
    }
    void add(const GuardedBuffer& of, int i, int within, std::vector<int>* all) const {
        const Form::Set& set = form.sets[size_t(i)];
        for (int digit = 0; digit < form.digits; ++digit)
            for (int group = 0; group < set.groups; ++group)
                for (int r = 0; r < form.rows; ++r) {
                    const int8_t* const line = of.as<int8_t>() + form.query_at(i, within) +
                                               form.line_at(set, digit, group) + r * Form::kLine;
                    for (int at = 0; at < Form::kChunk; ++at) {
                        const int d = form.element_of(set.chunk + within, at);
                        if (d >= 0 && d / form.group_size == set.group + group)
                            (*all)[size_t(r * form.dim + d)] +=
                                line[at] * (1 << 8 * (form.digits - 1 - digit));
                        else
                            EXPECT_EQ(int(line[at]), 0) << "set " << i << " row " << r << " byte " << at;
                    }
                }
    }

    void check(const RoundedQuery& wanted) const {
        written.check(numbers(written.bytes), numbers(wanted.query), wanted);
    }

    const Form form;
    const TileQuery written;
};

template <typename Check>
void for_each_key(const Check& check) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no AMX";
    int count = 0;
    for (const RowShape& shape : token_shapes())
        for (const jit::Products products :
             {jit::Products::two_digit_tiles, jit::Products::three_digit_tiles})
            for (const int rows : {1, 3, 4, 16}) {
                const jit::RowKey key{&best_target(), shape.format, shape.dim, rows, products};
                if (!takes_token_key_amx(key)) continue;
                SCOPED_TRACE(key.name("query_token_amx"));
                check(key);
                ++count;
            }
    EXPECT_GT(count, 0);
}

TEST(KernelsQuery, QuickTokenTiles) {
    for_each_key([](const jit::RowKey& key) {
        for (const Flush flush : {Flush::end, Flush::begin}) {
            std::vector<std::vector<float>> rows;
            for (int r = 0; r < key.rows; ++r) rows.push_back(uneven_row(key.dim, uint64_t(r) + 1));
            std::vector<float> changed = padded_rows(rows, key.padded());
            const RoundedQuery wanted = rounded_query(key, key.rows, changed.data(), flush);
            Lines(key, rows, flush).check(wanted);
        }
    });
}

// All elements are in one line of each digit and row, whatever the sets: no more tiles than lines need.
TEST(KernelsQuery, QuickSetsOfTokenTiles) {
    if (!best_target().amx) GTEST_SKIP() << best_target().name << " has no AMX";
    struct Wanted {
        int dim, group, rows, sets, tiles;
    };
    for (const Wanted& of : {Wanted{128, 128, 4, 1, 2},
                             {128, 64, 4, 2, 2},
                             {128, 32, 4, 2, 4},
                             {96, 96, 4, 1, 2},
                             {192, 96, 4, 3, 4},
                             {128, 8, 16, 8, 48},
                             {80, 80, 1, 1, 2}}) {
        const quire_format format = {QUIRE_INT8_B16, of.group, QUIRE_F16};
        const Form form({&best_target(), format, of.dim, of.rows, jit::Products::three_digit_tiles});
        EXPECT_EQ(int(form.sets.size()), of.sets) << of.dim << " in groups of " << of.group;
        EXPECT_EQ(form.query_bytes() / Form::kTileBytes, of.tiles) << of.dim << " in groups of " << of.group;
    }
}

// What is not a number, or has none for its size, is seen in the row's factor and in no other's.
TEST(KernelsQuery, QuickPoisonOfTokenTiles) {
    for_each_key([](const jit::RowKey& key) {
        for (const float number : {NAN, -INFINITY}) {
            std::vector<std::vector<float>> rows(size_t(key.rows), uneven_row(key.dim, 2));
            rows[size_t(key.rows / 2)][size_t(key.dim - 1)] = number;
            const Lines got(key, rows, Flush::end);
            for (int r = 0; r < key.rows; ++r)
                ASSERT_EQ(std::isnan(got.written.factors.as<float>()[r]), r == key.rows / 2)
                    << number << " row " << r;
        }
    });
}

}  // namespace
}  // namespace quire::test
