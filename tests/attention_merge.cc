// Parts of the keys, and the merge of states at its corners; random ones are in property_same.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/run.h"

namespace quire::test {
namespace {

Case base(quire_type type, const quire_format& format) {
    Case c;
    c.type = type;
    c.key_format = c.value_format = format;
    c.D = 40;
    c.Dv = 24;
    c.H = 4;
    c.Hk = 2;
    c.placement = Placement::offsets;
    return c;
}

// Runs attention on keys begin .. end of every sequence of `tensors`.
Outcome run_part(Tensors& tensors, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                 const Target& target) {
    for (int64_t b = 0; b < tensors.spec.B(); ++b) {
        std::memcpy(element(tensors.key_begin_view, b, 0), &begin[size_t(b)], 8);
        std::memcpy(element(tensors.key_end_view, b, 0), &end[size_t(b)], 8);
    }
    Way way;
    way.target = target.name;
    return run(tensors, way);
}

// A key range is as good as a cache that holds only those keys.
TEST(AttentionMerge, QuickKeyRangeIsAShorterCache) {
    for (const Target* target : targets()) {
        Case c = base(QUIRE_F32, plain_format(QUIRE_F16));
        c.sequences = {{1, 90}, {3, 40}, {12, 64}};
        c.key_ranges = true;
        Tensors ranged(c);
        const Outcome first = run_part(ranged, {0, 0, 0}, {50, 33, 10}, *target);
        // The same rows by kvstarts: the numbers of a sequence do not depend on its length.
        Case shorter = c;
        shorter.key_ranges = false;
        shorter.sequences = {{1, 50}, {3, 33}, {12, 10}};
        Tensors tensors(shorter);
        Way way;
        way.target = target->name;
        EXPECT_TRUE(run(tensors, way) == first) << c << " on " << target->name;
    }
}

struct State {
    std::vector<float> output, lse;
};

State merge_rows(State a, State b) {
    const int64_t shape[] = {1, int64_t(a.lse.size()), int64_t(a.output.size() / a.lse.size())};
    State to{std::vector<float>(a.output.size(), 9.f), std::vector<float>(a.lse.size(), 9.f)};
    quire_tensor views[6];
    State* states[] = {&a, &b, &to};
    for (int i = 0; i < 3; ++i) {
        views[2 * i] = quire_tensor_of(states[i]->output.data(), QUIRE_F32, 3, shape);
        views[2 * i + 1] = quire_tensor_of(states[i]->lse.data(), QUIRE_F32, 2, shape);
    }
    EXPECT_EQ(quire_merge_states(nullptr, &views[0], &views[1], &views[2], &views[3], &views[4], &views[5]),
              QUIRE_OK);
    return to;
}

TEST(AttentionMerge, QuickStatesOfNothing) {
    const float none = -INFINITY;
    // Heads: both empty; the left one; the right one, whose neighbour holds NaN; far apart; very large;
    // equal.
    const State merged =
        merge_rows({{7, 8, 1, 2, NAN, NAN, 1, 2, 1, 2, 1, 2}, {none, 0.5f, none, 200, 1e30f, -3}},
                   {{9, 9, NAN, INFINITY, 3, 4, 3, 4, 3, 4, 3, 4}, {none, none, -2, -200, 1e30f, -3}});
    EXPECT_EQ(merged.output, (std::vector<float>{0, 0, 1, 2, 3, 4, 1, 2, 2, 3, 2, 3}));
    EXPECT_EQ(merged.lse, (std::vector<float>{none, 0.5f, -2, 200, 1e30f, -3 + std::log(2.f)}));
}

// Outputs without elements have no data; their sums are merged all the same.
TEST(AttentionMerge, QuickNoElements) {
    const int64_t shape[] = {2, 3, 0};
    float a[6], b[6], merged[6] = {};
    std::fill_n(a, 6, 0.f);
    std::fill_n(b, 6, 0.f);
    const quire_tensor none = quire_tensor_of(nullptr, QUIRE_F32, 3, shape),
                       of_a = quire_tensor_of(a, QUIRE_F32, 2, shape),
                       of_b = quire_tensor_of(b, QUIRE_F32, 2, shape),
                       of_both = quire_tensor_of(merged, QUIRE_F32, 2, shape);
    quire_tensor far = none;  // an empty tensor's strides and data mean nothing
    far.data = a;
    far.strides[0] = far.strides[1] = INT64_MAX;
    for (const quire_tensor& output : {none, far}) {
        EXPECT_EQ(quire_merge_states(nullptr, &none, &of_a, &far, &of_b, &output, &of_both), QUIRE_OK);
        for (const float lse : merged) EXPECT_EQ(lse, std::log(2.f));
        std::fill_n(merged, 6, 0.f);
    }
}

}  // namespace
}  // namespace quire::test
