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

// `portable` against the test's own loops: the definition is right, and so is what everything is held
// against.
TEST(AttentionFormats, QuickPortable) { check_all(sweep(3, 40, 3e5), {find_target("portable")}); }

}  // namespace
}  // namespace quire::test
