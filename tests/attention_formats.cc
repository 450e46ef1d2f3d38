// Every format, head size, head ratio, length and layout on every target against the definition.
#include <gtest/gtest.h>

#include "tests/support/accuracy.h"
#include "tests/support/check.h"
#include "tests/support/factors.h"

namespace quire::test {
namespace {

std::vector<Case> sweep(uint64_t seed, int count, double most_multiplications) {
    Cover cover(seed);
    add_formats(&cover);
    add_head_sizes(&cover);
    add_lengths(&cover);
    add_layouts(&cover);
    return cover.cases(count, Case(), [&](Case* c) { return fit(c, most_multiplications); });
}

TEST(AttentionFormats, Quick) { check_all(sweep(1, 50, 4e5), {&best_target()}); }

TEST(AttentionFormats, Sweep) {
    // Measured 0.9 to 1.1: float32 arithmetic throughout, in another order.
    EXPECT_LT(check_all(sweep(2, 450, 3e7), jit_targets()), 1.25);
}

// A single key's value is exact in float32, so that one of weights that are digits has to be, too.
TEST(AttentionFormats, QuickSingleKeys) {
    for (const quire_format& format :
         {quantised(QUIRE_INT8, 32, QUIRE_F16), quantised(QUIRE_INT4, 32, QUIRE_F16),
          quantised(QUIRE_INT8_B16, 32, QUIRE_F16), quantised(QUIRE_INT4_B16, 32, QUIRE_F16),
          plain_format(QUIRE_Q8_0), plain_format(QUIRE_Q4_0), plain_format(QUIRE_IQ4_NL),
          plain_format(QUIRE_Q5_0), plain_format(QUIRE_Q4_1), plain_format(QUIRE_Q5_1)})
        for (const int head_size : {32, 128})
            for (const int64_t queries : {1, 8, 12, 16})
                for (const uint64_t seed : {1, 2, 3, 4}) {
                    Case c;
                    c.H = c.Hk = 3;
                    c.D = c.Dv = head_size;
                    c.key_format = c.value_format = format;
                    c.seed = seed;
                    c.sequences = {{queries, 1}};
                    check(c, {&best_target()});
                }
}

// Scales of either sign in a row, of keys and of values.
TEST(AttentionFormats, QuickNegativeScales) {
    for (const quire_format& format :
         {quantised(QUIRE_INT8, 8, QUIRE_F16), quantised(QUIRE_INT8, 32, QUIRE_F32),
          quantised(QUIRE_INT4, 16, QUIRE_F16), quantised(QUIRE_INT4, 64, QUIRE_F16),
          quantised(QUIRE_INT8_B16, 16, QUIRE_F16), quantised(QUIRE_INT4_B16, 8, QUIRE_F16)})
        for (const quire_precision precision :
             {QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM})
            for (const int64_t queries : {1, 3, 20}) {
                Case c;
                c.H = 4;
                c.Hk = 2;
                c.D = c.Dv = 64;
                c.key_format = c.value_format = format;
                c.precision = precision;
                c.sequences = {{queries, 48}, {queries, 300}};
                Tensors tensors(c);
                for (int64_t b = 0; b < c.B(); ++b)
                    for (int64_t t = 0; t < c.sequences[size_t(b)].keys; t += 1 + b)
                        for (CacheSide* side : {&tensors.key, &tensors.value})
                            for (int g = int(t) % 2; g < c.D / format.quant_group; g += 2)
                                side->negate(tensors.slot(b, t), int(t % c.Hk), g);
                check(tensors, {&best_target()});
            }
}

// `portable` against the test's own loops: the definition is right, and so is what everything is held
// against.
TEST(AttentionFormats, QuickPortable) { check_all(sweep(3, 40, 3e5), {find_target("portable")}); }

}  // namespace
}  // namespace quire::test
