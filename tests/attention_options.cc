// Everything that hides keys or changes scores, alone and together, on every target against the definition.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/check.h"
#include "tests/support/factors.h"

namespace quire::test {
namespace {

// Options on a few formats and head sizes; lengths and layouts as in the sweep over formats.
std::vector<Case> sweep(uint64_t seed, int count, double most_multiplications) {
    Cover cover(seed);
    add_options(&cover);
    cover.factor(5, [](Case* c, int i) {
        const int sizes[] = {16, 20, 64, 80, 128};
        c->D = c->Dv = sizes[i];
    });
    cover.factor(6, [](Case* c, int i) {
        const int heads[] = {1, 2, 3, 4, 8, 12}, kv_heads[] = {1, 1, 3, 1, 2, 1};
        c->H = heads[i];
        c->Hk = kv_heads[i];
    });
    cover.factor(4, [](Case* c, int i) {
        c->key_format = c->value_format = i == 0   ? plain_format(QUIRE_F32)
                                          : i == 1 ? plain_format(QUIRE_F16)
                                          : i == 2 ? quantised(QUIRE_INT8, 4, QUIRE_F16)
                                                   : quantised(QUIRE_INT4, c->D, QUIRE_F32);
    });
    add_lengths(&cover);
    add_layouts(&cover);
    return cover.cases(count, Case(), [&](Case* c) { return fit(c, most_multiplications); });
}

TEST(AttentionOptions, Quick) { check_all(sweep(11, 60, 4e5), {&best_target()}); }

// With dot products of bfloat16, where the target has them.
TEST(AttentionOptions, QuickMedium) {
    std::vector<Case> cases = sweep(14, 60, 4e5);
    for (Case& c : cases) c.precision = QUIRE_PRECISION_MEDIUM;
    const auto of_tiles = [](const Case& c) { return c.sequences[0].queries * c.group() > 8; };
    EXPECT_GT(std::count_if(cases.begin(), cases.end(), of_tiles), 10);
    check_all(cases, {&best_target()});
}

TEST(AttentionOptions, Sweep) { EXPECT_LT(check_all(sweep(12, 450, 1e7), jit_targets()), 1.3); }

// A mask has no rows for a sequence without queries: the address sanitizer sees who reads one.
TEST(AttentionOptions, QuickMaskWithoutQueries) {
    Case c;
    c.mask_rank = 2;
    c.sequences = {{1, 20, 1}, {0, 30, 2}};
    Tensors tensors(c);
    check(tensors, targets());
}

TEST(AttentionOptions, QuickPortable) { check_all(sweep(13, 40, 2e5), {find_target("portable")}); }

}  // namespace
}  // namespace quire::test
