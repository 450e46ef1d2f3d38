// Arithmetic at its ends: the caller's floating-point environment, very large and very small scores,
// overflow.
#include <fenv.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "jit/args.h"
#include "src/half.h"
#include "tests/support/append.h"
#include "tests/support/check.h"

namespace quire::test {
namespace {

constexpr unsigned kFlushToZero = 1 << 15, kDenormalsAreZero = 1 << 6, kRoundUp = 2 << 13,
                   kAllMasked = 0x1f80;

// MXCSR for the length of a scope.
class CallerEnvironment {
public:
    explicit CallerEnvironment(unsigned mxcsr) : before_(_mm_getcsr()) { _mm_setcsr(mxcsr); }
    ~CallerEnvironment() { _mm_setcsr(before_); }

private:
    const unsigned before_;
};

// Subnormal numbers all over: products of queries and keys, values, mask, scales of the cache.
Case subnormal_case(const quire_format& format) {
    Case c;
    c.D = c.Dv = 20;
    c.H = 2;
    c.key_format = c.value_format = format;
    c.placement = Placement::pages;
    c.sequences = {{1, 70}, {12, 40}, {2, 1100}};
    c.alibi = true;
    c.mask_rank = 2;
    c.sinks = true;
    return c;
}
void make_subnormal(Tensors* tensors) {
    Random random(71);
    const Case& c = tensors->spec;
    for (int64_t b = 0; b < c.B(); ++b)
        for (int64_t t = 0; t < c.sequences[size_t(b)].keys; ++t) {
            std::vector<float> row(size_t(c.Dv));
            for (float& x : row) x = random.normal() * 1e-39f;
            tensors->value.store(tensors->slot(b, t), 0, row);
        }
}

const unsigned kEnvironments[] = {kAllMasked | kFlushToZero | kDenormalsAreZero, kAllMasked | kRoundUp,
                                  kAllMasked | kRoundUp | kFlushToZero | kDenormalsAreZero | 0x3f};

TEST(Numerics, QuickCallersEnvironmentAttention) {
    for (const quire_format& format : {plain_format(QUIRE_F32), quantised(QUIRE_INT8, 4, QUIRE_F16)}) {
        Tensors tensors(subnormal_case(format));
        if (format.type == QUIRE_F32) make_subnormal(&tensors);
        for (const Target* target : targets())
            for (const int threads : {1, 3, -2}) {
                Way way;
                way.target = target->name;
                way.threads = std::max(threads, 1);
                way.slices = std::max(-threads, 0);
                const Outcome wanted = run(tensors, way);
                for (const unsigned environment : kEnvironments) {
                    const CallerEnvironment caller(environment);
                    const Outcome got = run(tensors, way);
                    EXPECT_EQ(_mm_getcsr(), environment) << way.name();
                    EXPECT_TRUE(got == wanted) << way.name() << ", MXCSR " << environment;
                }
            }
    }
}

// Kernels make none (attend.h: WithoutSubnormals), which would take some processors a hundred cycles each:
// sums of weighted values below the smallest normal number are 0. The definition has them.
TEST(Numerics, QuickSubnormalSums) {
    Tensors tensors(subnormal_case(plain_format(QUIRE_F32)));
    make_subnormal(&tensors);
    const auto count = [&](const Target* target) {
        Way way;
        way.target = target->name;
        const std::vector<float> output = run(tensors, way).output;
        return std::count_if(output.begin(), output.end(), [](float x) { return x != 0; });
    };
    EXPECT_GT(count(find_target("portable")), 0);
    for (const Target* target : jit_targets()) EXPECT_EQ(count(target), 0) << target->name;
}

TEST(Numerics, QuickCallersEnvironmentAppend) {
    for (const quire_format& format : {plain_format(QUIRE_F16), quantised(QUIRE_INT8, 4, QUIRE_F16),
                                       quantised(QUIRE_INT4, 4, QUIRE_F32)}) {
        Append append(subnormal_case(format));
        append.spoil();
        const Append::Bytes wanted = append.expected();
        for (const Target* target : targets())
            for (const unsigned environment : kEnvironments) {
                append.forget();
                Way way;
                way.target = target->name;
                const CallerEnvironment caller(environment);
                append.run(way);
                EXPECT_EQ(_mm_getcsr(), environment) << target->name;
                EXPECT_TRUE(append.same(wanted)) << target->name << ", MXCSR " << environment;
            }
    }
}

TEST(Numerics, QuickCallersEnvironmentMerge) {
    float output[2][2] = {{1e-39f, 0.1f}, {3e-39f, 0.7f}}, lse[2] = {0.3f, -1.1f}, merged[2], merged_lse;
    const int64_t shape[] = {1, 1, 2};
    const quire_tensor a = quire_tensor_of(output[0], QUIRE_F32, 3, shape),
                       b = quire_tensor_of(output[1], QUIRE_F32, 3, shape),
                       to = quire_tensor_of(merged, QUIRE_F32, 3, shape),
                       a_lse = quire_tensor_of(&lse[0], QUIRE_F32, 2, shape),
                       b_lse = quire_tensor_of(&lse[1], QUIRE_F32, 2, shape),
                       to_lse = quire_tensor_of(&merged_lse, QUIRE_F32, 2, shape);
    const auto run = [&](unsigned environment) {
        const CallerEnvironment caller(environment);
        EXPECT_EQ(quire_merge_states(nullptr, &a, &a_lse, &b, &b_lse, &to, &to_lse), QUIRE_OK);
        EXPECT_EQ(_mm_getcsr(), environment);
        return std::vector<uint32_t>{float_bits(merged[0]), float_bits(merged[1]), float_bits(merged_lse)};
    };
    const std::vector<uint32_t> wanted = run(kAllMasked);
    for (const unsigned environment : kEnvironments) EXPECT_EQ(run(environment), wanted);
}

// A caller that traps on invalid operations gets no trap from what is not a number in the cache.
TEST(Numerics, QuickTrappingCaller) {
    for (const Target* target : targets()) {
        Case c = subnormal_case(plain_format(QUIRE_F16));
        Tensors tensors(c);
        tensors.value.poison(tensors.slot(0, 3), 0, INFINITY);
        tensors.key.poison(tensors.slot(1, 3), 0, NAN);
        Way way;
        way.target = target->name;
        const Outcome wanted = run(tensors, way);
        feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
        const Outcome got = run(tensors, way);
        fedisableexcept(FE_ALL_EXCEPT);
        EXPECT_EQ(got.output_bytes, wanted.output_bytes) << target->name;
    }
}

Case plain_case(const std::vector<Lengths>& sequences) {
    Case c;
    c.D = c.Dv = 24;
    c.sequences = sequences;
    return c;
}
// The last: several vectors of query rows, three tiles, of which one is no multiple of kTileStep.
const std::vector<std::vector<Lengths>> kShapes = {{{1, 90}}, {{20, 90}}, {{1, 1100}}, {{50, 300}}};

// One key far above the rest, weights that underflow, scores that a soft cap flattens. A few near ties make
// all of the error here: of many cases together it is held against that of plain float32, and of more where
// one tie can be most of it (of 15 cases once 11 times plain float32's error, of 200 between 1 and 1.7).
TEST(Numerics, LargeScores) {
    for (const std::vector<Lengths>& sequences : kShapes)
        for (const float scale : {1.f, -1.f, 30.f, 1000.f, 1e5f, 1e-30f, 1e-38f})
            for (const float soft_cap : {0.f, 50.f})
                for (const Target* target : targets()) {
                    ErrorRatio ratio;
                    for (uint64_t seed = 1; seed <= (scale > 1000 ? 100 : 15); ++seed) {
                        Case c = plain_case(sequences);
                        c.scale = scale;
                        c.soft_cap = soft_cap;
                        c.seed = seed;
                        Tensors tensors(c);
                        Way way;
                        way.target = target->name;
                        ratio.add(c, expect(tensors), run(tensors, way));
                    }
                    EXPECT_LT(ratio.value(), 2.5)
                        << "scale " << scale << ", cap " << soft_cap << " on " << target->name;
                }
}

// Masks of -10000 or the lowest f16 in place of -inf: weights as the definition gives them, also where all
// keys of a row have them.
TEST(Numerics, QuickLargeMasks) {
    for (const std::vector<Lengths>& sequences : kShapes)
        for (const float low : {-10000.f, -65504.f, -1e30f, -3.4e38f}) {
            Case c = plain_case(sequences);
            c.mask_rank = 2;
            c.lse = low > -1e38f;  // in units of log2 it has no room for more
            Tensors tensors(c);
            Random random(72);
            for (int64_t token = 0; token < c.n(); ++token)
                for (int64_t t = 0; t < c.all_keys(); ++t)
                    tensors.set_mask(token, 0, 0, t, token % 3 == 1 || random.chance(0.3) ? low : 0.f);
            check(tensors, targets());
        }
}

// The running maximum grows with every key, and every block, and shrinks never: weights are rescaled each
// time.
TEST(Numerics, QuickRisingScores) {
    for (const std::vector<Lengths>& sequences : kShapes)
        for (const float step : {0.01f, 1.f, 20.f, -20.f, 200.f}) {
            Case c = plain_case(sequences);
            c.mask_rank = 2;
            Tensors tensors(c);
            for (int64_t token = 0; token < c.n(); ++token)
                for (int64_t t = 0; t < c.all_keys(); ++t) tensors.set_mask(token, 0, 0, t, step * float(t));
            check(tensors, targets());
        }
}

// The same of keys alone, for which softmax is relative to the tiles before, as long as scores don't rise too
// fast (jit/tile_qk_softmax.cc): each row's at a pace of its own, or they fall. At `medium` of numbers that
// bfloat16 has, as large scores of others are far off there. Three vectors of query rows, and two.
TEST(Numerics, RisingKeys) {
    Random random(74);
    const auto make = [&](int64_t queries, quire_type type, quire_precision precision, float step) {
        const auto number = [&] {
            return precision == QUIRE_PRECISION_MEDIUM ? float(int(random.below(9)) - 4) / 4
                                                       : random.normal();
        };
        Case c = plain_case({{queries, 900}});
        c.key_format = c.value_format = {type, 0, QUIRE_NONE};
        c.precision = precision;
        c.scale = 1;
        Tensors tensors(c);
        for (int64_t token = 0; token < queries; ++token)
            for (int d = 0; d < c.D; ++d)
                store_number(c.type, const_cast<char*>(element(tensors.query_view, token, 0)), d, number());
        for (int64_t t = 0; t < c.all_keys(); ++t) {
            std::vector<float> row(size_t(c.D));
            for (float& x : row) x = number() / 2;
            row[0] = step * float(t / jit::kTileKeys);
            tensors.key.store(tensors.slot(0, t), 0, row);
        }
        return tensors;
    };
    for (const int64_t queries : {50, 30})
        for (const quire_type type : {QUIRE_F32, QUIRE_BF16})
            for (const float step : {1.f, 5.f, 9.f, 20.f, 200.f, 6000.f}) {
                SCOPED_TRACE(testing::Message() << "step " << step);
                Tensors exact = make(queries, type, QUIRE_PRECISION_MEDIUM, step);
                check(exact, targets());
                ErrorRatio ratio;  // of several: near ties make most of the error
                for (int i = 0; i < 5; ++i) {
                    Tensors usual = make(queries, type, QUIRE_PRECISION_HIGHEST, step);
                    const Expected expected = expect(usual);
                    for (const Target* target : targets()) {
                        Way way;
                        way.target = target->name;
                        ratio.add(usual.spec, expected, run(usual, way));
                    }
                }
                EXPECT_LT(ratio.value(), 2.5);
            }
}

// Values near the largest float: their weighted mean is a float, though their weighted sum is not.
TEST(Numerics, QuickLargeValues) {
    for (const std::vector<Lengths>& sequences : kShapes)
        for (const float value : {1e30f, 1e36f, 3e38f})
            for (const Target* target : targets()) {
                Case c = plain_case(sequences);
                Tensors tensors(c);
                for (int64_t t = 0; t < c.all_keys(); ++t)
                    tensors.value.store(tensors.slot(0, t), 0, std::vector<float>(size_t(c.Dv), value));
                Way way;
                way.target = target->name;
                for (float x : run(tensors, way).output)
                    ASSERT_NEAR(double(x) / double(value), 1, 2e-6) << c << " on " << target->name;
            }
}

// Scales of the cache near the ends of float32: of keys 1e30 for a query factor as small, of values 1e36.
TEST(Numerics, QuickLargeScales) {
    for (const quire_type type : {QUIRE_INT8, QUIRE_INT4})
        for (const std::vector<Lengths>& sequences : kShapes) {
            Case c = plain_case(sequences);
            c.D = c.Dv = 64;
            c.H = 4;
            c.Hk = 1;
            c.key_format = c.value_format = quantised(type, 32, QUIRE_F32);
            c.scale = 1e-31f;
            Tensors tensors(c);
            Random random(73);
            for (int64_t t = 0; t < c.all_keys(); ++t)
                for (CacheSide* side : {&tensors.key, &tensors.value}) {
                    std::vector<float> row(64);
                    for (float& x : row) x = random.normal() * (side == &tensors.key ? 1e30f : 1e36f);
                    side->store(tensors.slot(0, t), 0, row);
                }
            check(tensors, targets());
        }
}

// All values are the largest codes there are, and probabilities hardly less than 1: sums of integers come as
// close to their limits as they can. Four query rows: of groups of 8 values are scaled themselves at
// `medium`.
void check_largest_codes(quire_precision precision, const quire_format& format, int code, float score) {
    Case c = plain_case({{1, 300}});
    c.precision = precision;
    c.D = c.Dv = 64;
    c.H = 4;
    c.Hk = 1;
    c.key_format = c.value_format = format;
    Tensors tensors(c);
    for (int64_t t = 0; t < 300; ++t) {
        const int64_t slot = tensors.slot(0, t);
        tensors.key.store(slot, 0, std::vector<float>(64, t % 2 ? score / 64 : 0));
        const TokenPlace place = tensors.value.at(slot, 0);
        std::memset(place.row, code, 64);
        for (int g = 0; g < 64 / format.quant_group; ++g) store_number(format.scale_type, place.scales, g, 1);
    }
    for (const Target* target : targets()) {
        Way way;
        way.target = target->name;
        for (const float x : run(tensors, way).output)
            ASSERT_NEAR(x, code, 2) << target->name << ", groups of " << format.quant_group << ", score "
                                    << score;
    }
}

TEST(Numerics, QuickLargestCodes) {
    for (const quire_precision precision : {QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM})
        for (const quire_format& format :
             {quantised(QUIRE_INT8, 32, QUIRE_F32), quantised(QUIRE_INT8, 8, QUIRE_F16)})
            for (const int code : {-128, 127})
                for (const float score : {0.f, -1e-6f, -1e-3f, -.1f})
                    check_largest_codes(precision, format, code, score);
}

// Equal scores, one key, values that cancel.
TEST(Numerics, QuickExactResults) {
    for (const Target* target : targets())
        for (const int64_t S : {1, 12}) {
            Case c = plain_case({{S, 64}});
            Tensors tensors(c);
            for (int64_t t = 0; t < 64; ++t) {
                tensors.key.store(tensors.slot(0, t), 0, std::vector<float>(24, 0.f));
                tensors.value.store(tensors.slot(0, t), 0, std::vector<float>(24, float(t)));
            }
            Way way;
            way.target = target->name;
            const Outcome got = run(tensors, way);
            for (float x : got.output) ASSERT_EQ(x, 31.5f) << target->name;
            for (float x : got.lse) ASSERT_EQ(x, float(std::log(64.0))) << target->name;
        }
}

}  // namespace
}  // namespace quire::test
