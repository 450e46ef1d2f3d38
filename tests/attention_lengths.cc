// Every border that a length can cross: keys of a block, a tile, a page, a part; rows of the decode kernels,
// of a panel, of a block of rows; elements of a vector.
#include <gtest/gtest.h>

#include "tests/support/check.h"
#include "tests/support/factors.h"

namespace quire::test {
namespace {

Case small(const quire_format& format, int D) {
    Case c;
    c.D = c.Dv = D;
    c.key_format = c.value_format = format;
    return c;
}

// All lengths up to past two tiles, decode and tiles, in pages that end inside blocks.
TEST(AttentionLengths, AllKeys) {
    for (int64_t T = 0; T <= 270; ++T) {
        Case c = small(T % 2 == 0 ? plain_format(QUIRE_F16) : quantised(QUIRE_INT4, 8, QUIRE_F16), 24);
        c.placement = T % 3 == 0 ? Placement::pages : Placement::offsets;
        c.page_size = 1 + int(T % 37);
        c.causal = T % 5 != 0;
        c.seed = c.order_seed = uint64_t(T);
        for (int64_t S : {1, 3, 11}) {
            c.sequences = {{S, T}};
            check(c, jit_targets());
        }
    }
}

// All numbers of query tokens up to past two panels of the widest target; rows that see no key among them.
TEST(AttentionLengths, AllQueries) {
    for (int64_t S = 0; S <= 110; ++S) {
        Case c = small(S % 2 == 0 ? plain_format(QUIRE_BF16) : quantised(QUIRE_INT8, 4, QUIRE_F32), 20);
        c.H = S % 3 == 0 ? 3 : 1;
        c.causal = true;
        c.seed = uint64_t(S);
        for (int64_t T : {5, 64, 141}) {
            c.sequences = {{S, T}};
            check(c, jit_targets());
        }
    }
}

// Blocks in heads from one block on, and lengths around the borders.
TEST(AttentionLengths, AllBlocks) {
    for (const quire_type type : block_types())
        for (int D : {32, 64, 96, 128, 160, 256, 576, 1024}) {
            Case c = small(plain_format(type), D);
            c.type = D % 3 == 0 ? QUIRE_BF16 : D % 3 == 1 ? QUIRE_F16 : QUIRE_F32;
            c.flush = D % 64 == 0 ? Flush::end : Flush::begin;
            c.layout = D / 32 % 4;
            c.H = 4;
            c.Hk = 2;
            c.causal = true;
            c.sequences = {{1, 1}, {2, 5}, {9, 33}, {1, 129}};
            if (D == 64) c.sequences.push_back({70, 200});
            c.seed = uint64_t(D);
            check(c, jit_targets());
            if (D <= 64) check(c, {find_target("portable")});
        }
}

// Blocks of tokens that are filled in part, of every length up to past two of them; the window begins in
// their middle. What they hold past the end is NaN (tests/support/tensors.h).
TEST(AttentionLengths, QuickTokenBlocks) {
    for (const quire_type type : token_block_types())
        for (int64_t T = 1; T <= 40; ++T) {
            Case c = small(quantised(type, 8, QUIRE_F16), 24);
            c.placement = Placement::pages;
            c.page_size = T % 3 == 0 ? 16 : 32;
            c.precision = T % 2 == 0 ? QUIRE_PRECISION_HIGHEST : QUIRE_PRECISION_HIGH;
            c.H = 4;
            c.causal = true;
            c.has_window = T % 4 == 3;
            c.window_left = int(T % 13);
            c.sequences = {{1, T}, {2, T + 1}, {11, T + 128}};
            c.seed = uint64_t(T);
            Tensors tensors(c);
            for (const Target* target : jit_targets()) {
                Way way;
                way.target = target->name;
                const Outcome got = run(tensors, way);
                c.clean = true;
                Tensors clean(c);
                EXPECT_TRUE(got == run(clean, way)) << c << " on " << target->name;
                c.clean = false;
                if (c.precision == QUIRE_PRECISION_HIGHEST) check(tensors, {target});
            }
        }
}

// Windows that begin anywhere in a tile, for decode, few rows with some left, and tiles: hidden keys before
// them, of which some are in the same vector, are NaN in no result.
void check_windows(int64_t step) {
    for (const quire_format& format :
         {plain_format(QUIRE_F32), plain_format(QUIRE_F16), quantised(QUIRE_INT8, 32, QUIRE_F16),
          quantised(QUIRE_INT4, 32, QUIRE_F16), quantised(QUIRE_INT8_B16, 32, QUIRE_F16)})
        for (int64_t T = 300; T < 440; T += step) {
            Case c = small(format, 64);
            c.placement = Placement::pages;
            c.page_size = T % 2 == 0 ? 128 : 16;
            c.H = 8;
            c.Hk = 2;
            c.causal = true;
            c.has_window = true;
            c.window_left = 20 + int(T % 5 * 50);
            c.precision = T % 4 == 0 ? QUIRE_PRECISION_HIGH : QUIRE_PRECISION_HIGHEST;
            c.sequences = {{1, T}, {2, T + 600}, {5, T + 1}, {13, T}};
            c.seed = uint64_t(T);
            check(c, {&best_target()});
        }
}

TEST(AttentionLengths, QuickWindows) { check_windows(47); }
TEST(AttentionLengths, Windows) { check_windows(3); }

// All head sizes up to past four vectors: every tail of every loader and of the output.
TEST(AttentionLengths, AllHeadSizes) {
    for (int D = 1; D <= 70; ++D) {
        for (const quire_format& format :
             {plain_format(QUIRE_F32), plain_format(QUIRE_F16), plain_format(QUIRE_BF16),
              quantised(QUIRE_INT8, 1, QUIRE_F16), quantised(QUIRE_INT8, D, QUIRE_F32),
              quantised(QUIRE_INT4, 1, QUIRE_F32), quantised(QUIRE_INT4, D, QUIRE_F16)}) {
            if (format.type == QUIRE_INT4 && D % 2 != 0) continue;
            Case c = small(format, D);
            c.type = D % 3 == 0 ? QUIRE_BF16 : D % 3 == 1 ? QUIRE_F16 : QUIRE_F32;
            c.flush = D % 2 == 0 ? Flush::end : Flush::begin;
            c.sequences = {{2, 5}, {9, 33}};
            c.seed = uint64_t(D);
            check(c, jit_targets());
        }
    }
}

// The largest heads that the header allows, and every group size that divides one of them.
TEST(AttentionLengths, LargeHeads) {
    for (const int D : {512, 960, 1023, 1024}) {
        Case c = small(plain_format(QUIRE_F32), D);
        c.H = 4;
        c.sequences = {{1, 70}, {4, 3}, {17, 130}};
        check(c, jit_targets());
        c.key_format = quantised(QUIRE_INT8, D % 3 == 0 ? 3 : 4, QUIRE_F16);
        c.value_format = D % 2 == 0 ? quantised(QUIRE_INT4, 1, QUIRE_F32) : plain_format(QUIRE_BF16);
        check(c, jit_targets());
    }
}

TEST(AttentionLengths, AllGroups) {
    for (int group = 1; group <= 240; ++group) {
        if (240 % group != 0) continue;
        for (quire_type type : {QUIRE_INT8, QUIRE_INT4}) {
            Case c = small(quantised(type, group, group % 2 == 0 ? QUIRE_F16 : QUIRE_F32), 240);
            c.sequences = {{1, 67}, {3, 40}, {12, 67}};
            check(c, jit_targets());
        }
    }
}

// Around the borders of key ranges that are attended to apart and merged; windows that begin inside one.
TEST(AttentionLengths, Parts) {
    for (const int64_t border : {1024, 2048, 3072, 4096, 8192}) {
        for (const int64_t T : {border - 1, border, border + 1, border + 64, border + 65}) {
            Case c = small(T % 2 == 0 ? plain_format(QUIRE_F32) : quantised(QUIRE_INT8, 16, QUIRE_F16), 16);
            c.placement = Placement::pages;
            c.page_size = 128;
            c.causal = true;
            c.H = 2;
            c.sequences = {{1, T}, {4, T}, {7, T}, {16, T}};
            check(c, jit_targets());
            c.has_window = true;
            c.window_left = int(border / 2 + T % 3 - 1);
            check(c, jit_targets());
            c.window_left = 3;  // keys of one part only, or of two
            check(c, jit_targets());
        }
    }
}

// More parts than one merge takes at a time.
TEST(AttentionLengths, ManyParts) {
    Case c = small(plain_format(QUIRE_F16), 8);
    c.placement = Placement::offsets;
    c.sequences = {{1, 66 * 1024 + 1}, {2, 128 * 1024}};
    check(c, jit_targets());
    c.sequences = {{9, 65 * 4096}};
    check(c, jit_targets());
}

// Long enough that rows are cut into blocks: keys are cut too up to 16 query tokens, and not beyond.
TEST(AttentionLengths, RowBlocks) {
    for (const int heads : {16, 48}) {
        for (const int64_t S : {15, 16, 17, 40}) {
            Case c = small(quantised(QUIRE_INT8, 8, QUIRE_F16), 8);
            c.H = heads;
            c.causal = true;
            c.sequences = {{S, 4096 + 5}, {S, 64}};
            check(c, jit_targets());
        }
    }
    Case c = small(plain_format(QUIRE_F32), 8);
    c.sequences = {{1000, 1500}};
    c.causal = true;
    check(c, jit_targets());
    c.has_window = true;
    c.window_left = 200;
    c.window_right = 10;
    check(c, jit_targets());
}

TEST(AttentionLengths, QuickBorders) {
    for (const int64_t T : {0, 1, 16, 63, 64, 65, 127, 128, 129, 1024, 1025, 4097}) {
        Case c = small(quantised(QUIRE_INT8, 8, QUIRE_F16), 24);
        c.placement = Placement::pages;
        c.page_size = 16;
        c.H = 2;
        c.causal = true;
        c.sequences = {{1, T}, {4, T}, {5, T}, {2, 3}};
        check(c, {&best_target()});
    }
}

// Nothing to do: no sequences, no tokens, no keys.
TEST(AttentionLengths, QuickEmpty) {
    for (const std::vector<Lengths>& sequences : {std::vector<Lengths>{},
                                                  {{0, 0}},
                                                  {{0, 7}},
                                                  {{3, 0}},
                                                  {{40, 0}},
                                                  {{0, 0}, {1, 0}, {0, 3}, {2, 2}}}) {
        for (Placement placement : {Placement::dense, Placement::offsets, Placement::pages}) {
            Case c = small(plain_format(QUIRE_F32), 8);
            c.sequences = sequences;
            c.placement = placement;
            check(c, targets());
        }
    }
}

}  // namespace
}  // namespace quire::test
