// The same bits for any number of threads and any pool, run after run. Random batches, orders and places in
// memory are in property_same.cc.
#include <gtest/gtest.h>

#include "tests/support/check.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

Case base(const quire_format& key, const quire_format& value) {
    Case c;
    c.key_format = key;
    c.value_format = value;
    c.D = 64;
    c.Dv = 32;
    c.H = 4;
    c.Hk = 2;
    c.causal = true;
    c.placement = Placement::pages;
    c.page_size = 16;
    return c;
}

// Decode, a few tokens, tiles, row blocks and merged key ranges, in one batch.
const std::vector<Lengths> kBatch = {{1, 70, 1},   {3, 1025, 2}, {40, 300, 3},  {1, 5000, 4},
                                     {9, 4200, 5}, {2, 2, 6},    {300, 320, 7}, {7, 4300, 8}};

// For `portable`, which takes its time.
const std::vector<Lengths> kSmallBatch = {{1, 70, 1}, {3, 105, 2}, {20, 60, 3}, {1, 1100, 4}};

std::vector<Case> bases() {
    Case alibi = base(plain_format(QUIRE_F16), plain_format(QUIRE_BF16));
    alibi.alibi = true;
    alibi.type = QUIRE_F16;
    alibi.H = 6;  // three heads a kv head
    Case masked = base(quantised(QUIRE_INT4, 8, QUIRE_F16), quantised(QUIRE_INT4, 32, QUIRE_F32));
    masked.mask_rank = 2;
    masked.sinks = true;
    masked.soft_cap = 10;
    Case high = base(quantised(QUIRE_INT8, 32, QUIRE_F16), plain_format(QUIRE_Q4_0));
    high.precision = QUIRE_PRECISION_HIGH;
    Case medium = base(quantised(QUIRE_INT8, 32, QUIRE_F16), plain_format(QUIRE_F16));
    medium.precision = QUIRE_PRECISION_MEDIUM;
    Case nibbles = base(quantised(QUIRE_INT4, 32, QUIRE_F16), quantised(QUIRE_INT4, 32, QUIRE_F16));
    nibbles.precision = QUIRE_PRECISION_MEDIUM;
    Case blocks = base(quantised(QUIRE_INT8_B16, 8, QUIRE_F16), quantised(QUIRE_INT4_B16, 16, QUIRE_F16));
    blocks.precision = QUIRE_PRECISION_HIGH;
    return {high,
            blocks,
            medium,
            nibbles,
            base(plain_format(QUIRE_F32), plain_format(QUIRE_F32)),
            base(quantised(QUIRE_INT8, 8, QUIRE_F16), quantised(QUIRE_INT8, 16, QUIRE_F16)),
            alibi,
            masked};
}

Outcome run_on(const Case& c, const Target& target) {
    Tensors tensors(c);
    Way way;
    way.target = target.name;
    return run(tensors, way);
}

// Bytes of output and lse of sequence b.
std::vector<uint8_t> part(const Case& c, const Outcome& outcome, int64_t b) {
    int64_t first = 0;
    for (int64_t i = 0; i < b; ++i) first += c.sequences[size_t(i)].queries;
    const int64_t rows = c.sequences[size_t(b)].queries;
    const int64_t output_row = c.H * c.Dv * type_bits(c.type) / 8, lse_row = c.H * 4;
    const auto output = outcome.output_bytes.begin(), lse = outcome.lse_bytes.begin();
    std::vector<uint8_t> bytes(output + first * output_row, output + (first + rows) * output_row);
    bytes.insert(bytes.end(), lse + first * lse_row, lse + (first + rows) * lse_row);
    return bytes;
}

void check_ways(const std::vector<Case>& cases, const std::vector<const Target*>& on) {
    for (const Case& c : cases) {
        Tensors tensors(c);
        for (const Target* target : on) {
            Way way;
            way.target = target->name;
            const Outcome alone = run(tensors, way);
            for (const int threads : {1, 2, 3, 8, 0, -1, -2, -3, -5}) {
                way.threads = threads > 0 ? threads : 1;
                way.slices = threads > 0 ? 0 : -threads;
                for (int repeat = 0; repeat < 2; ++repeat)
                    EXPECT_TRUE(run(tensors, way) == alone) << c << " on " << way.name();
            }
        }
    }
}

TEST(AttentionSameBits, Threads) {
    std::vector<Case> cases = bases();
    for (Case& c : cases) c.sequences = kBatch;
    check_ways(cases, jit_targets());
    for (Case& c : cases) c.sequences = kSmallBatch;
    check_ways(cases, {find_target("portable")});
}

TEST(AttentionSameBits, QuickThreads) {
    Case c = bases()[1];
    c.sequences = {{1, 70}, {1, 1100}, {20, 40}};
    check_ways({c}, {&best_target()});
    c.sequences = {{1, 20}, {3, 30}};
    check_ways({c}, {find_target("portable")});
    for (const int of_medium : {2, 3}) {
        Case medium = bases()[size_t(of_medium)];
        medium.sequences = {{1, 70}, {20, 40}};
        check_ways({medium}, {&best_target()});
    }
}

// Many small items: threads take them in a different order each time.
TEST(AttentionSameBits, ManySequences) {
    for (Case c : bases()) {
        for (int i = 0; i < 60; ++i) c.sequences.push_back({1 + i % 4, 5 + i * 7});
        check_ways({c}, {&best_target()});
    }
}

void check_layouts() {
    Case floats = base(plain_format(QUIRE_F32), plain_format(QUIRE_F32));
    floats.H = floats.Hk = 4;
    Case high = base(quantised(QUIRE_INT8, 32, QUIRE_F16), quantised(QUIRE_INT8, 32, QUIRE_F16));
    high.precision = QUIRE_PRECISION_HIGH;
    high.H = high.Hk = 16;
    for (Case c : {floats, high}) {
        c.Dv = 64;
        c.sequences = {{1, 301, 1}, {2, 40, 2}, {30, 50, 3}};
        Tensors tensors(c);
        EXPECT_EQ(tensors.value.rows_view.strides[0] * type_bits(c.value_format.type) / 8, 4096);
        check(tensors, {&best_target()});
        const Outcome far = run_on(c, best_target());
        for (const int layout : {1, 2, 3}) {
            c.layout = layout;
            EXPECT_TRUE(run_on(c, best_target()) == far) << c;
        }
    }
}

// Wherever rows are: also a multiple of 4096 bytes apart, where decode copies values if the second-level
// cache is small.
TEST(AttentionSameBits, QuickLayouts) {
    const bool large = has_large_l2();
    for (const bool assumed : {false, true}) {
        SCOPED_TRACE(assumed);
        assume_large_l2(assumed);
        check_layouts();
    }
    assume_large_l2(large);
}

// Rows side by side have kernels of their own, for blocks that are full or end with a vector, and others
// where they lie so within pages of fewer; the rest of the same sequence, and of the next, is listed.
TEST(AttentionSameBits, AdjacentRows) {
    for (Case c : bases()) {
        c.sequences = {{1, 1300, 1}, {1, 37, 2}, {2, 656, 3}, {1, 128, 4}, {3, 1025, 5}};
        for (const int64_t page_size : {16, 48, 64, 128, 192, 512}) {
            c.page_size = page_size;
            c.layout = 2;
            const Outcome listed = run_on(c, best_target());
            c.layout = 3;
            Tensors tensors(c);
            check(tensors, {&best_target()});
            EXPECT_EQ(tensors.key.rows_view.strides[0], tensors.key.rows_view.shape[2]);
            EXPECT_TRUE(run_on(c, best_target()) == listed) << c;
        }
    }
}

void check_alone(const Case& c, const Target& target) {
    const Outcome together = run_on(c, target);
    for (int64_t b = 0; b < c.B(); ++b) {
        Case alone = c;
        alone.sequences = {c.sequences[size_t(b)]};
        EXPECT_EQ(part(alone, run_on(alone, target), 0), part(c, together, b))
            << alone << " on " << target.name;
    }
}

// Sequences of more items than a long one is to have, which are cut into longer parts (Schedule::split_into).
TEST(AttentionSameBits, LongerParts) {
    Case c = base(quantised(QUIRE_INT8, 32, QUIRE_F16), quantised(QUIRE_INT4, 32, QUIRE_F16));
    c.H = c.Hk = 32;
    c.sequences = {{1, 2300, 1}, {1, 70, 2}, {2, 4300, 3}};
    Tensors tensors(c);
    check(tensors, {&best_target()});
    check_ways({c}, {&best_target()});
    check_alone(c, best_target());
}

// Threads run parts of a head in a row, of one kv head and of those whose rows interleave, and merge those of
// which they have all; beside items of tiles, which they do not.
TEST(AttentionSameBits, PartsInARow) {
    for (const int kv_heads : {1, 3}) {
        Case c = base(quantised(QUIRE_INT8, 32, QUIRE_F16), quantised(QUIRE_INT8, 32, QUIRE_F16));
        c.Hk = kv_heads;
        c.H = 2 * kv_heads;
        c.Dv = 64;
        c.page_size = 128;
        c.sequences = {{1, 2300, 1}, {200, 220, 2}, {1, 600, 3}, {2, 1500, 4}, {1, 90, 5}};
        Tensors tensors(c);
        check(tensors, {&best_target()});
        const Outcome first = run_on(c, best_target());
        for (const int layout : {0, 1, 2, 3}) {
            c.layout = layout;
            EXPECT_TRUE(run_on(c, best_target()) == first) << c;
            check_ways({c}, {&best_target()});
        }
        check_alone(c, best_target());
    }
}

// What follows an item of decode in the same thread may be a part of tiles, or of few rows. Tiles come first:
// then the threads of a new context have not kept a query yet.
TEST(AttentionSameBits, TilesBehindDecode) {
    for (const int64_t queries : {32, 4})
        for (const int layout : {0, 3}) {
            Case c = base(plain_format(QUIRE_F32), plain_format(QUIRE_F32));
            c.H = 8;
            c.D = c.Dv = 128;
            c.page_size = 128;
            c.layout = layout;
            c.sequences = {{1, 100, 1}, {queries, 10000, 2}};
            check_ways({c}, {&best_target()});
            check_alone(c, best_target());
        }
}

TEST(AttentionSameBits, QuickAloneAndInBatch) {
    Case c = bases()[1];
    c.sequences = kSmallBatch;
    check_alone(c, best_target());
}

}  // namespace
}  // namespace quire::test
