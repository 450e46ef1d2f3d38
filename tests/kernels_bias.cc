// The kernel that adds rows of an additive mask to scores, query rows in the lanes: rows of exactly as many
// numbers as it is given, registers poisoned.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "jit/kernels.h"
#include "src/half.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

constexpr float kLog2e = 1.44269504f, kLowest = std::numeric_limits<float>::lowest();

// The score in log2 units, of which only -Inf hides a key: the largest numbers below 0 stay finite in these.
float expected(float score, float x) {
    if (x == -INFINITY) return x;
    return std::fma(x < jit::kLeastOfMask ? jit::kLeastOfMask : x, kLog2e, score);
}

float draw(Random* random) {
    const float special[] = {0, -0.f, -INFINITY, INFINITY, NAN, kLowest, -kLowest, 1e-40f, -1e-45f, -1e38f};
    return random->chance(0.3) ? special[random->below(int64_t(std::size(special)))] : random->normal();
}

// fours: of rows that are the same.
void check_bias(const Target& target, quire_type type, int count, bool fours, Flush flush) {
    jit::BiasKernels kernels;
    ASSERT_TRUE(make_bias_kernels(test_code_cache(), target, &kernels).ok());
    const int lanes = target.lanes(), stride = 3 * lanes;
    Random random(count);
    std::vector<GuardedBuffer> rows;
    std::vector<const void*> list;
    for (int r = 0; r < lanes; ++r) {
        rows.emplace_back(size_t(count * type_bits(type) / 8), flush);
        for (int i = 0; i < count; ++i) store_number(type, rows.back().data(), i, draw(&random));
        rows.back().forbid_writes();
        list.push_back(rows[size_t(fours ? r / 4 * 4 : r)].data());
    }
    const int64_t first = bytes_of(type, 3 * count);  // keys of other tiles
    std::vector<const char*> begins;
    for (const void* row : list) begins.push_back(static_cast<const char*>(row) - first);
    const GuardedBuffer addresses = GuardedBuffer::of(begins, flush);
    GuardedBuffer scores(size_t((count - 1) * stride + lanes) * sizeof(float), flush);
    std::vector<float> before;
    for (size_t i = 0; i < scores.size() / 4; ++i) {
        before.push_back(random.chance(0.1) ? NAN : random.chance(0.1) ? -INFINITY : random.normal());
        scores.as<float>()[i] = before.back();
    }
    std::vector<float> bounds;  // some above all sums, some below
    for (int lane = 0; lane < lanes; ++lane) bounds.push_back(lane % 3 == 0 ? -INFINITY : random.normal());
    GuardedBuffer max = GuardedBuffer::of(bounds, flush);
    poisoned_call<jit::TileBiasArgs>(
        kernels.of(type),
        {addresses.as<const char*>(), first, scores.as<float>(), stride * 4, count, fours, max.as<float>()},
        Entry::nan);
    for (int i = 0; i < count; ++i)
        for (int lane = 0; lane < lanes; ++lane) {
            const float sum = scores.as<float>()[i * stride + lane];
            if (sum > bounds[size_t(lane)]) bounds[size_t(lane)] = sum;
        }
    for (int lane = 0; lane < lanes; ++lane)
        ASSERT_EQ(max.as<float>()[lane], bounds[size_t(lane)]) << "the largest sum of lane " << lane;
    for (int i = 0; i < count; ++i)
        for (int lane = 0; lane < stride && i * stride + lane < int(before.size()); ++lane) {
            const float got = scores.as<float>()[i * stride + lane],
                        score = before[size_t(i * stride + lane)];
            if (lane >= lanes) {
                ASSERT_EQ(float_bits(got), float_bits(score)) << "written beside the lanes";
                continue;
            }
            const float added = load_number(type, list[size_t(lane)], i), wanted = expected(score, added);
            const bool hidden = added == -INFINITY || (score == -INFINITY && !std::isnan(wanted));
            ASSERT_EQ(got == -INFINITY, hidden) << "a number hides the key " << i;
            ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : float_bits(got) == float_bits(wanted))
                << kernels.of(type).code().name << " key " << i << " lane " << lane << ": " << got
                << " instead of " << wanted;
        }
}

TEST(KernelsBias, Quick) {
    for (const Target* target : jit_targets())
        for (const quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
            for (const int count : {4, 8, 12, 16, 28, 128})
                for (const bool fours : {false, true})
                    for (const Flush flush : {Flush::end, Flush::begin})
                        check_bias(*target, type, count, fours, flush);
}

}  // namespace
}  // namespace quire::test
