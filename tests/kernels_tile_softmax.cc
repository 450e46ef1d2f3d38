// Softmax of tiles that leaves pairs of bfloat16 numbers, on its own: scores so large that it counts in
// float32 lanes, NaN in any place, rows that see nothing; registers poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "jit/kernels.h"
#include "src/half.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

constexpr int kCount = 32;
// Of a weight (jit/bfloat_exp2.h).
constexpr double kRelative = 5.1e-3;
// Where all maxima are smaller (one that has seen nothing is not) the sum is of what was rounded.
constexpr float kLarge = 32000;

enum class Rows { usual, with_nan, hidden };

class TileSoftmaxOfPairs {
public:
    TileSoftmaxOfPairs(const Target& target, int vecs, Flush flush)
        : flush_(flush), lanes_(vecs * target.lanes()), headroom_(target.amx ? jit::kHeadroom : 0) {
        const jit::RowKey row{&target, plain_format(QUIRE_BF16), 16, 0, jit::Products::bfloats};
        EXPECT_TRUE(make_tile_kernels(test_code_cache(), row, row, {}, vecs, &kernels_).ok());
    }

    // Relative, of weights below 1.
    struct Errors {
        double sum = 0, squares = 0, largest = 0, count = 0;
        void add(double error) {
            sum += error;
            squares += error * error;
            largest = std::max(largest, std::fabs(error));
            ++count;
        }
    };

    // Scores around `middle`, of some rows of `rows`.
    void check(float middle, float spread, Rows rows, Random* random, Errors* errors = nullptr) {
        SCOPED_TRACE(testing::Message() << "around " << middle << " +- " << spread << ", rows " << int(rows));
        GuardedBuffer scores(size_t(kCount * lanes_) * 4, flush_);
        float* const s = scores.as<float>();
        for (int i = 0; i < kCount * lanes_; ++i) s[i] = middle + spread * random->normal();
        for (int r = 0; r < lanes_; r += 3) {
            if (rows == Rows::with_nan)
                s[random->below(kCount) * lanes_ + r] = random->chance(.5) ? NAN : -NAN;
            for (int k = 0; rows == Rows::hidden && k < kCount; ++k) s[k * lanes_ + r] = -INFINITY;
        }
        const std::vector<float> before(s, s + kCount * lanes_);
        std::vector<float> top(size_t(lanes_), -INFINITY);
        for (int k = 0; k < kCount; ++k)
            for (int r = 0; r < lanes_; ++r)
                top[size_t(r)] = std::fmax(top[size_t(r)], before[size_t(k * lanes_ + r)]);
        const auto array = [&](float x) {
            return GuardedBuffer::of(std::vector<float>(size_t(lanes_), x), flush_);
        };
        GuardedBuffer max = array(-INFINITY), new_max = GuardedBuffer::of(top, flush_), sum = array(0),
                      rescale = array(NAN);
        poisoned_call<jit::TileSoftmaxArgs>(
            kernels_.softmax,
            {s, nullptr, nullptr, nullptr, nullptr, nullptr, max.as<float>(), new_max.as<float>(),
             sum.as<float>(), rescale.as<float>(), kCount, kCount, 0},
            Entry::nan);
        const bool of_rounded =
            std::all_of(top.begin(), top.end(), [](float x) { return std::fabs(x) < kLarge; });
        for (float& t : top) t += headroom_;
        for (int r = 0; r < lanes_; ++r) {
            ASSERT_EQ(max.as<float>()[r], top[size_t(r)]);
            check_row(before, scores.as<uint16_t>(), r, double(top[size_t(r)]), double(sum.as<float>()[r]),
                      of_rounded, errors);
        }
    }

private:
    void check_row(const std::vector<float>& before, const uint16_t* pairs, int r, double top, double sum,
                   bool of_rounded, Errors* errors) const {
        double total = 0, of_pairs = 0;
        bool is_nan = false;
        for (int k = 0; k < kCount; ++k) {
            const auto score = double(before[size_t(k * lanes_ + r)]);
            is_nan |= std::isnan(score);
            if (std::isnan(score)) continue;
            const double wanted = top == -INFINITY ? 0 : std::exp2(score - top),
                         got = double(bfloat_to_float(pairs[(k / 2 * lanes_ + r) * 2 + k % 2]));
            ASSERT_NEAR(got, wanted, kRelative * wanted + 0x1p-126) << "key " << k << " row " << r;
            if (wanted == 1 || wanted == std::exp2(-double(headroom_))) {  // of a top so large, or any
                ASSERT_EQ(got, wanted) << "key " << k << " row " << r;
            }
            total += wanted;
            of_pairs += got;
            if (errors && wanted < 1) errors->add(got / wanted - 1);
        }
        ASSERT_EQ(std::isnan(sum), is_nan) << "row " << r;
        if (!is_nan) {
            ASSERT_NEAR(sum, total, kRelative * total) << "row " << r;
            if (of_rounded) {
                ASSERT_NEAR(sum, of_pairs, 1e-6 * of_pairs) << "row " << r;
            }
        }
    }

    const Flush flush_;
    const int lanes_;
    const float headroom_;  // of TileSoftmaxKey::goes_above
    jit::TileKernels kernels_;
};

// What jit/bfloat_exp2.h says of the error.
TEST(KernelsTileSoftmax, QuickErrorOfPairs) {
    if (targets_with(&Target::bf16).empty()) GTEST_SKIP() << "no dot products of bfloat16 here";
    for (const Target* target : targets_with(&Target::bf16)) {
        TileSoftmaxOfPairs softmax(*target, 1, Flush::end);
        Random random(1);
        TileSoftmaxOfPairs::Errors errors;
        for (int i = 0; i < 1000; ++i) softmax.check(0, 3, Rows::usual, &random, &errors);
        const double rms = std::sqrt(errors.squares / errors.count), mean = errors.sum / errors.count;
        std::printf("error of bfloat16 weights: RMS %.2e, mean %.0e, largest %.2e\n", rms, mean,
                    errors.largest);
        EXPECT_LT(rms, 1.8e-3);
        EXPECT_LT(std::fabs(mean), 1e-4);
        EXPECT_LT(errors.largest, 5e-3);
    }
}

TEST(KernelsTileSoftmax, QuickPairs) {
    if (targets_with(&Target::bf16).empty()) GTEST_SKIP() << "no dot products of bfloat16 here";
    for (const Target* target : targets_with(&Target::bf16))
        for (const int vecs : {1, 2, 3})
            for (const Flush flush : {Flush::end, Flush::begin}) {
                TileSoftmaxOfPairs softmax(*target, vecs, flush);
                Random random(vecs);
                for (const Rows rows : {Rows::usual, Rows::with_nan, Rows::hidden}) {
                    softmax.check(0, 3, rows, &random);
                    softmax.check(0, 200, rows, &random);  // most are 0
                    softmax.check(-4e4f, 2, rows, &random);
                    softmax.check(3.27e4f, 20, rows, &random);  // on both sides of where they are large
                    softmax.check(1e6f, 1, rows, &random);
                    softmax.check(0, 1e37f, rows, &random);
                }
            }
}

}  // namespace
}  // namespace quire::test
