// Dropout of quire_attention: the documented pattern, on all targets and for any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/dropout.h"
#include "src/format.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// The known answers of Random123, the authors' library (kat_vectors, philox4x32 10).
TEST(Dropout, QuickPhiloxKnownAnswers) {
    EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
              (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
              (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, QuickPiecesOfARowAgree) {
    const Dropout dropout{0.5f, 3, 9};
    std::vector<float> whole(103, 1.f);
    dropout.apply(2, 5, 0, 103, whole.data(), 1);
    for (const int64_t begin : {0, 1, 2, 3, 50, 99}) {
        for (const int64_t count : {1, 2, 4}) {
            std::vector<float> piece(size_t(3 * count), 1.f);
            dropout.apply(2, 5, begin, count, piece.data(), 3);
            for (int64_t i = 0; i < count; ++i) EXPECT_EQ(piece[size_t(3 * i)], whole[size_t(begin + i)]);
        }
    }
}

// quire_attention over T keys of equal scores, with a rate; the values are columns of the unit matrix, so
// that an output row is a row of probabilities.
struct Uniform {
    Uniform(int64_t tokens, int64_t keys) : S(tokens), T(keys) {
        value.resize(size_t(T * kHeads * kSize));
        for (int64_t t = 0; t < T; ++t)
            for (int64_t h = 0; h < kHeads; ++h) value[size_t((t * kHeads + h) * kSize + t % kSize)] = 1;
        key.resize(size_t(T * kHeads * kSize), 0.5f);
        query.resize(size_t(S * kHeads * kSize), 0.f);
    }
    std::vector<float> run(const std::string& target, int threads, float rate, int64_t step,
                           std::vector<float>* lse) {
        quire_attention_desc desc;
        quire_attention_desc_init(&desc);
        desc.num_heads = desc.num_kv_heads = kHeads;
        desc.head_dim = kSize;
        quire_plan* plan = nullptr;
        EXPECT_EQ(quire_attention_plan(context_of(target, threads), &desc, &plan), QUIRE_OK)
            << quire_last_error();
        std::vector<float> output(size_t(S * kHeads * kSize));
        lse->resize(size_t(S * kHeads));
        const auto tensor = [](std::vector<float>& numbers, std::vector<int64_t> shape) {
            return quire_tensor_of(numbers.data(), QUIRE_F32, int32_t(shape.size()), shape.data());
        };
        const quire_tensor q = tensor(query, {S, kHeads, kSize}), k = tensor(key, {T, kHeads, kSize}),
                           v = tensor(value, {T, kHeads, kSize}), o = tensor(output, {S, kHeads, kSize}),
                           l = tensor(*lse, {S, kHeads});
        quire_attention_args args = {};
        args.struct_size = sizeof args;
        args.query = &q, args.key = &k, args.value = &v, args.output = &o, args.lse = &l;
        args.dropout_rate = rate;
        args.dropout_seed = -5;
        args.dropout_step = step;
        EXPECT_EQ(quire_attention(plan, &args), QUIRE_OK) << quire_last_error();
        quire_plan_destroy(plan);
        return output;
    }
    static constexpr int64_t kHeads = 3, kSize = 64;
    int64_t S, T;
    std::vector<float> query, key, value;
};

// As quire.h writes it down: which word of which block.
double kept(int64_t h, int64_t i, int64_t t, float rate, uint32_t step) {
    const PhiloxBlock block = philox4x32_10({uint32_t(t / 4), uint32_t(i), uint32_t(h), step}, uint64_t(-5));
    return double(block[size_t(t % 4)]) < double(rate) * 0x1p32 ? 0 : 1 / (1 - double(rate));
}

// Decode and tiles, one range of keys and several: the pattern is the documented one, lse is that of all
// keys.
TEST(Dropout, PatternOfProbabilities) {
    for (const auto& [S, T] :
         {std::pair<int64_t, int64_t>{1, 64}, {1, 3000}, {2, 50}, {40, 64}, {33, 4500}}) {
        Uniform uniform(S, T);
        for (const Target* target : targets()) {
            std::vector<float> lse;
            const std::vector<float> got = uniform.run(target->name, 1, 0.3f, 7, &lse);
            for (int64_t i = 0; i < S; ++i) {
                for (int64_t h = 0; h < Uniform::kHeads; ++h) {
                    std::vector<double> wanted(Uniform::kSize, 0.0);
                    for (int64_t t = 0; t < T; ++t)
                        wanted[size_t(t % Uniform::kSize)] += kept(h, i, t, 0.3f, 7) / double(T);
                    const size_t row = size_t(i * Uniform::kHeads + h);
                    EXPECT_NEAR(lse[row], std::log(double(T)), 1e-5);
                    for (size_t d = 0; d < size_t(Uniform::kSize); ++d)
                        ASSERT_NEAR(got[row * Uniform::kSize + d], wanted[d], 1e-6)
                            << target->name << " S " << S << " T " << T << " i " << i << " h " << h << " d "
                            << d;
                }
            }
        }
    }
}

// The same of codes below `highest`: decode's probabilities become words relative to the largest of a block
// of keys, and those that are kept must not be larger than that; those of tiles become words, or bytes, which
// may be made of bfloat16 numbers.
void check_pattern_of_codes(quire_precision precision, int64_t tokens, double relative) {
    constexpr int64_t kKeyHeads = 2, kHeads = 8, kSize = 64, kKeys = 300;
    std::vector<float> query(size_t(tokens * kHeads * kSize), 0.f),
        scale(kKeys * kKeyHeads * kSize / 32, 1.f), output(query);
    std::vector<int8_t> key(kKeys * kKeyHeads * kSize, 1), value(key.size(), 0);
    for (int64_t t = 0; t < kKeys; ++t)
        for (int64_t h = 0; h < kKeyHeads; ++h) value[size_t((t * kKeyHeads + h) * kSize + t % kSize)] = 1;
    const auto tensor = [](auto& numbers, quire_type type, std::vector<int64_t> shape) {
        return quire_tensor_of(numbers.data(), type, int32_t(shape.size()), shape.data());
    };
    const quire_tensor q = tensor(query, QUIRE_F32, {tokens, kHeads, kSize}),
                       o = tensor(output, QUIRE_F32, {tokens, kHeads, kSize}),
                       k = tensor(key, QUIRE_INT8, {kKeys, kKeyHeads, kSize}),
                       v = tensor(value, QUIRE_INT8, {kKeys, kKeyHeads, kSize}),
                       s = tensor(scale, QUIRE_F32, {kKeys, kKeyHeads, kSize / 32});
    for (const Target* target : targets())
        for (const float rate : {0.3f, 0.9f}) {
            quire_attention_desc desc;
            quire_attention_desc_init(&desc);
            desc.num_heads = kHeads;
            desc.num_kv_heads = kKeyHeads;
            desc.head_dim = kSize;
            desc.key_format = desc.value_format = {QUIRE_INT8, 32, QUIRE_F32};
            desc.precision = precision;
            quire_plan* plan = nullptr;
            ASSERT_EQ(quire_attention_plan(context_of(target->name, 1), &desc, &plan), QUIRE_OK)
                << quire_last_error();
            quire_attention_args args = {};
            args.struct_size = sizeof args;
            args.query = &q, args.key = &k, args.value = &v, args.key_scale = args.value_scale = &s;
            args.output = &o;
            args.dropout_rate = rate;
            args.dropout_seed = -5;
            args.dropout_step = 7;
            ASSERT_EQ(quire_attention(plan, &args), QUIRE_OK) << quire_last_error();
            quire_plan_destroy(plan);
            for (int64_t row = 0; row < tokens * kHeads; ++row) {
                std::vector<double> wanted(kSize, 0.0);
                for (int64_t t = 0; t < kKeys; ++t)
                    wanted[size_t(t % kSize)] += kept(row % kHeads, row / kHeads, t, rate, 7) / double(kKeys);
                for (size_t d = 0; d < size_t(kSize); ++d)
                    ASSERT_NEAR(output[size_t(row * kSize) + d], wanted[d], 5e-6 + relative * wanted[d])
                        << target->name << " rate " << rate << " row " << row << " element " << d;
            }
        }
}

TEST(Dropout, PatternOfWords) {
    check_pattern_of_codes(QUIRE_PRECISION_HIGH, 1, 0);
    check_pattern_of_codes(QUIRE_PRECISION_HIGH, 3, 0);
    check_pattern_of_codes(QUIRE_PRECISION_HIGH, 11, 0);
}
TEST(Dropout, PatternOfBytes) {
    constexpr double kOfBfloat = 1. / 256;
    check_pattern_of_codes(QUIRE_PRECISION_MEDIUM, 1, kOfBfloat);
    check_pattern_of_codes(QUIRE_PRECISION_MEDIUM, 4, kOfBfloat);
    check_pattern_of_codes(QUIRE_PRECISION_MEDIUM, 11, kOfBfloat);
}

TEST(Dropout, ShareAndExpectation) {
    Uniform uniform(40, 64);
    std::vector<float> lse;
    for (const float rate : {0.1f, 0.5f, 0.9f}) {
        double sum = 0, zeros = 0, count = 0;
        std::vector<float> before;
        for (int64_t step = 0; step < 50; ++step) {
            const std::vector<float> got = uniform.run(best_target().name, 1, rate, step, &lse);
            EXPECT_NE(got, before);  // another step, another pattern
            before = got;
            for (const float p : got) {
                sum += double(p);
                zeros += p == 0;
                ++count;
            }
        }
        // 384000 draws: four standard deviations.
        EXPECT_NEAR(zeros / count, double(rate), 4 * std::sqrt(rate * (1 - rate) / count));
        EXPECT_NEAR(sum / count * 64, 1, 4 * std::sqrt(rate / (1 - rate) / count));
    }
}

TEST(Dropout, SameBitsForAnyThreads) {
    Uniform uniform(33, 4500);
    for (const Target* target : jit_targets()) {
        std::vector<float> lse;
        const std::vector<float> alone = uniform.run(target->name, 1, 0.4f, 1, &lse);
        for (const int threads : {2, 3, 8})
            EXPECT_EQ(uniform.run(target->name, threads, 0.4f, 1, &lse), alone);
    }
}

}  // namespace
}  // namespace quire::test
