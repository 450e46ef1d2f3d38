// QK with softmax in one kernel, on its own: probabilities and sums relative to tops, which are raised or
// kept lane by lane, and what makes it fail; registers poisoned, every array of exactly the documented
// length. Scores are small whole numbers and their eighths, so that both products find them without an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "jit/kernels.h"
#include "src/half.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// Of a probability: jit/math.h, jit/bfloat_exp2.h.
constexpr double kOfFloats = 2e-7, kOfPairs = 5.1e-3;

class TileQkSoftmax {
public:
    TileQkSoftmax(const Target& target, bool pairs, int dim, int vecs, int count, Flush flush)
        : pairs_(pairs),
          flush_(flush),
          lanes_(vecs * target.lanes()),
          dim_(dim),
          count_(count),
          key_{&target, plain_format(pairs ? QUIRE_BF16 : QUIRE_F32), dim_, 0,
               pairs ? jit::Products::bfloats : jit::Products::floats} {
        EXPECT_TRUE(make_tile_kernels(test_code_cache(), key_, key_, {}, vecs, &kernels_).ok());
        Random random(count + vecs);
        const auto eighths = [&](size_t n) {
            std::vector<float> numbers(n);
            for (float& x : numbers) x = float(int(random.below(9)) - 4) / 4;
            return numbers;
        };
        query = eighths(size_t(dim_ * lanes_));
        keys = eighths(size_t(dim_ * count));
        max = eighths(size_t(lanes_));
        for (float& x : max) x += 30;  // far above what scores vary by, and not what tops are by chance
        top = max;
        for (int r = 0; r < lanes_; r += 2) top[size_t(r)] -= 1;
        sum.assign(size_t(lanes_), 3);
    }

    bool is_there() const { return bool(kernels_.qk_softmax); }
    double score(int key, int r) const {
        double s = 0;
        for (int d = 0; d < dim_; ++d)
            s += double(keys[size_t(key * dim_ + d)]) * double(query[size_t(d * lanes_ + r)]);
        return s;
    }
    double largest(int r) const {
        double s = score(0, r);
        for (int k = 1; k < count_; ++k) s = std::fmax(s, score(k, r));
        return s;
    }
    // The lane's largest score so far is by so much below that of the tile.
    void set_max(int r, float below) {
        max[size_t(r)] = float(largest(r)) - below;
        top[size_t(r)] = max[size_t(r)] - 1;
    }

    bool run() {
        scores_ = array(size_t(count_ * lanes_), NAN, flush_);
        const auto guarded = [&](const std::vector<float>& list) { return GuardedBuffer::of(list, flush_); };
        max_ = guarded(max), top_ = guarded(top), sum_ = guarded(sum);
        rescale_ = array(size_t(lanes_), NAN, flush_), new_max_ = array(size_t(lanes_), NAN, flush_);
        GuardedBuffer scaled = array(size_t(lanes_), NAN, flush_), total = array(size_t(lanes_), NAN, flush_);
        GuardedBuffer relative = GuardedBuffer::of(
            std::vector<jit::RelativeTops>{{max_.as<float>(), top_.as<float>(), sum_.as<float>(),
                                            rescale_.as<float>(), scaled.as<float>(), total.as<float>(), -1}},
            flush_);
        GuardedBuffer runs = GuardedBuffer::of(std::vector<jit::LineRun>{{0, 0}}, flush_);
        GuardedBuffer ahead = GuardedBuffer::of(
            std::vector<jit::LinesAhead>{{64, 100, runs.as<jit::LineRun>(), jit::kLineBytes}}, flush_);
        const GuardedBuffer of_query = packed_query(), of_keys = packed_keys();
        poisoned_call<jit::TileQkArgs>(kernels_.qk_softmax,
                                       {of_query.data(),
                                        of_keys.data(),
                                        scores_.as<float>(),
                                        count_,
                                        nullptr,
                                        nullptr,
                                        new_max_.as<float>(),
                                        ahead.as<jit::LinesAhead>(),
                                        {},
                                        relative.as<jit::RelativeTops>(),
                                        nullptr},
                                       Entry::nan);
        const int64_t fails = relative.as<jit::RelativeTops>()->fails;
        EXPECT_TRUE(fails == 0 || fails == 1) << fails;
        return fails == 0;
    }

    void check() const {
        for (int r = 0; r < lanes_; ++r) {
            const auto i = size_t(r);
            const float wanted_top = pairs_ && top[i] != max[i] ? max[i] + jit::kHeadroom : max[i];
            const double factor = std::exp2(double(max[i]) - double(wanted_top));
            ASSERT_EQ(max_.as<float>()[r], wanted_top) << "row " << r;
            ASSERT_EQ(top_.as<float>()[r], wanted_top) << "row " << r;
            ASSERT_NEAR(double(rescale_.as<float>()[r]), factor, 2e-7 * factor) << "row " << r;
            check_row(r, double(wanted_top), double(sum[i]) * factor);
        }
    }
    void check_unchanged() const {
        for (int r = 0; r < lanes_; ++r) {
            ASSERT_EQ(max_.as<float>()[r], max[size_t(r)]) << "row " << r;
            ASSERT_EQ(sum_.as<float>()[r], sum[size_t(r)]) << "row " << r;
        }
    }
    int lanes() const { return lanes_; }
    bool pairs() const { return pairs_; }

    std::vector<float> query, keys;    // [D][lanes], [count][D]
    std::vector<float> max, top, sum;  // [lanes]

private:
    void check_row(int r, double top_of_row, double sum_before) const {
        const double relative = pairs_ ? kOfPairs : kOfFloats;
        double total = sum_before;
        bool is_nan = false;
        for (int k = 0; k < count_; ++k) {
            const double s = score(k, r), wanted = std::exp2(s - top_of_row);
            const double got =
                pairs_ ? double(bfloat_to_float(scores_.as<uint16_t>()[(k / 2 * lanes_ + r) * 2 + k % 2]))
                       : double(scores_.as<float>()[k * lanes_ + r]);
            is_nan |= std::isnan(s);
            if (std::isnan(s)) {
                ASSERT_TRUE(pairs_ ? got == 0 : std::isnan(got)) << "key " << k << " row " << r;
                continue;
            }
            ASSERT_NEAR(got, wanted, relative * wanted + 0x1p-126) << "key " << k << " row " << r;
            total += wanted;
        }
        const auto got = double(sum_.as<float>()[r]);
        ASSERT_EQ(std::isnan(got), is_nan) << "row " << r;
        if (is_nan) return;
        ASSERT_NEAR(got, total, (relative + 1e-6) * total) << "row " << r;
    }

    // Pairs are of two rows of the query.
    GuardedBuffer packed_query() const {
        if (!pairs_) return GuardedBuffer::of(query, flush_);
        std::vector<uint16_t> bits;
        for (int d = 0; d < dim_; d += 2)
            for (int r = 0; r < lanes_; ++r)
                for (int i : {0, 1}) bits.push_back(float_to_bfloat(query[size_t((d + i) * lanes_ + r)]));
        return GuardedBuffer::of(bits, flush_);
    }
    GuardedBuffer packed_keys() const {
        const int stride = key_.tile_lanes() * (pairs_ ? 2 : 1);
        std::vector<float> numbers(size_t(stride * count_), NAN);
        for (int k = 0; k < count_; ++k)
            for (int d = 0; d < dim_; ++d) numbers[size_t(k * stride + d)] = keys[size_t(k * dim_ + d)];
        if (!pairs_) return GuardedBuffer::of(numbers, flush_);
        std::vector<uint16_t> bits;
        for (float x : numbers) bits.push_back(float_to_bfloat(x));
        return GuardedBuffer::of(bits, flush_);
    }

    const bool pairs_;
    const Flush flush_;
    const int lanes_, dim_, count_;
    const jit::RowKey key_;
    jit::TileKernels kernels_;
    GuardedBuffer scores_, max_, top_, sum_, rescale_, new_max_;
};

// body(kernel) for every one there is.
template <typename Body>
void for_all(const Body& body) {
    int found = 0;
    for (const Target* target : jit_targets())
        for (bool pairs : {false, true}) {
            if (pairs && !target->bf16) continue;
            for (const auto& [dim, vecs] : {std::pair(32, 3), {96, 3}, {24, 3}, {40, 2}, {32, 2}, {128, 2}})
                for (int count : {8, 16, 32, 128}) {
                    if (pairs && count % jit::kKeyPadding != 0) continue;
                    TileQkSoftmax kernel(*target, pairs, dim, vecs, count,
                                         count == 32 ? Flush::begin : Flush::end);
                    if (!kernel.is_there()) continue;
                    ++found;
                    SCOPED_TRACE(testing::Message() << target->name << (pairs ? " pairs" : "") << " D" << dim
                                                    << " vecs " << vecs << " keys " << count);
                    body(kernel);
                }
        }
    if (found == 0) GTEST_SKIP() << "no target of 512 bits here";
}

TEST(KernelsTileQkSoftmax, QuickRelativeToTops) {
    for_all([](TileQkSoftmax& kernel) {
        ASSERT_TRUE(kernel.run());
        kernel.check();
    });
}

// Where a top is so large that what is added to it is rounded, or lost.
TEST(KernelsTileQkSoftmax, QuickLargeTops) {
    for_all([](TileQkSoftmax& kernel) {
        for (float large : {1000.1f, 32000.3f, 32760.7f}) {
            for (size_t r = 0; r < kernel.max.size(); r += 3)
                kernel.max[r] = large, kernel.top[r] = large - 1;
            const bool fails = kernel.pairs() && large + jit::kHeadroom > jit::kLargestPairTop;
            ASSERT_EQ(kernel.run(), !fails) << large;
            fails ? kernel.check_unchanged() : kernel.check();
        }
        if (kernel.pairs()) return;
        kernel.max[0] = kernel.top[0] = 1e12f;
        ASSERT_TRUE(kernel.run());
        kernel.check();
    });
}

// As far as scores may grow, and one step further.
TEST(KernelsTileQkSoftmax, QuickFailsWhereAScoreIsLarger) {
    for_all([](TileQkSoftmax& kernel) {
        for (int r : {0, 5, kernel.lanes() - 1}) {
            kernel.set_max(r, jit::kHeadroom);
            ASSERT_TRUE(kernel.run()) << "row " << r;
            kernel.check();
            kernel.set_max(r, jit::kHeadroom + .125f);
            ASSERT_FALSE(kernel.run()) << "row " << r;
            kernel.check_unchanged();
            kernel.set_max(r, 0);
        }
    });
}

TEST(KernelsTileQkSoftmax, QuickFailsWhereARowHasSeenNothing) {
    for_all([](TileQkSoftmax& kernel) {
        for (float top : {-INFINITY, 0.f}) {
            kernel.max[3] = -INFINITY, kernel.top[3] = top;
            ASSERT_FALSE(kernel.run());
            kernel.check_unchanged();
        }
    });
}

TEST(KernelsTileQkSoftmax, QuickNaNStaysInItsRow) {
    for_all([](TileQkSoftmax& kernel) {
        kernel.query[size_t(kernel.lanes() + 2)] = NAN;
        ASSERT_TRUE(kernel.run());
        kernel.check();
    });
}

}  // namespace
}  // namespace quire::test
