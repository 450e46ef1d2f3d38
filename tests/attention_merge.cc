// Parts of the keys and their merge, append and what follows it: the same attention by another way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/append.h"
#include "tests/support/check.h"

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

// Outcome -> merged outcome, through the C API; `in_place` writes over the first part.
Outcome merge(const Case& c, Outcome a, Outcome b, bool in_place) {
    const int64_t shape[] = {c.n(), c.H, c.Dv};
    const auto output = [&](std::vector<uint8_t>& bytes) {
        return quire_tensor_of(bytes.data(), c.type, 3, shape);
    };
    const auto lse = [&](std::vector<uint8_t>& bytes) {
        return quire_tensor_of(bytes.data(), QUIRE_F32, 2, shape);
    };
    Outcome merged = a;
    Outcome& to = in_place ? a : merged;
    const quire_tensor a_output = output(a.output_bytes), a_lse = lse(a.lse_bytes),
                       b_output = output(b.output_bytes), b_lse = lse(b.lse_bytes),
                       to_output = output(to.output_bytes), to_lse = lse(to.lse_bytes);
    EXPECT_EQ(quire_merge_states(nullptr, &a_output, &a_lse, &b_output, &b_lse, &to_output, &to_lse),
              QUIRE_OK)
        << quire_last_error();
    for (size_t i = 0; i < to.output.size(); ++i)
        to.output[i] = load_number(c.type, to.output_bytes.data(), int64_t(i));
    for (size_t i = 0; i < to.lse.size(); ++i)
        to.lse[i] = load_number(QUIRE_F32, to.lse_bytes.data(), int64_t(i));
    return to;
}

// Two parts of each sequence, one of them empty at times, merged: attention over the whole.
TEST(AttentionMerge, QuickTwoParts) {
    Random random(61);
    for (const quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
        for (const Target* target : targets()) {
            Case c = base(type, quantised(QUIRE_INT8, 8, QUIRE_F16));
            c.key_ranges = true;
            c.sequences = {{1, 100}, {20, 150}, {3, 7}, {2, target->jit() ? 1500 : 15}, {1, 1}};
            Tensors tensors(c);
            std::vector<int64_t> zero(5, 0), middle, all;
            for (const Lengths& s : c.sequences) {
                middle.push_back(random.between(0, s.keys));
                all.push_back(s.keys);
            }
            const Outcome whole = run_part(tensors, zero, all, *target),
                          left = run_part(tensors, zero, middle, *target),
                          right = run_part(tensors, middle, all, *target);
            const Outcome merged = merge(c, left, right, false);
            EXPECT_TRUE(merge(c, left, right, true) == merged) << "in place";
            // Three roundings to the type of outputs of about 1.
            const float tolerance = type == QUIRE_F32 ? 3e-6f : type == QUIRE_F16 ? 2e-3f : 2e-2f;
            for (size_t i = 0; i < whole.output.size(); ++i)
                ASSERT_NEAR(merged.output[i], whole.output[i], tolerance) << c;
            for (size_t i = 0; i < whole.lse.size(); ++i)
                ASSERT_NEAR(merged.lse[i], whole.lse[i], 3e-6f) << c;
        }
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

// Dense keys, and the same keys appended one call after another: the same bits, every format and target.
TEST(AttentionMerge, QuickAppendThenAttend) {
    for (const quire_format& format :
         {plain_format(QUIRE_F32), plain_format(QUIRE_BF16), quantised(QUIRE_INT8, 8, QUIRE_F16),
          quantised(QUIRE_INT4, 4, QUIRE_F32)})
        for (const Target* target : targets()) {
            Case c = base(QUIRE_F32, format);
            c.placement = Placement::pages;
            c.page_size = 7;
            c.causal = true;
            c.sequences = {{1, 30}, {4, 4}, {40, 80}};
            Way way;
            way.target = target->name;
            Append append(c);
            append.forget();
            append.run(way);
            const Outcome got = run(append.tensors, way);

            // The same cache, encoded here.
            Tensors encoded(c);
            for (int64_t b = 0; b < c.B(); ++b)
                for (int64_t i = 0; i < c.sequences[size_t(b)].queries; ++i)
                    for (int head = 0; head < c.Hk; ++head) {
                        const int64_t token = encoded.first_token(b) + i,
                                      slot = encoded.slot(b, c.sequences[size_t(b)].keys -
                                                                 c.sequences[size_t(b)].queries + i);
                        const auto numbers = [&](const quire_tensor& view, int dim) {
                            std::vector<float> row;
                            for (int d = 0; d < dim; ++d)
                                row.push_back(load_number(c.type, element(view, token, head), d));
                            return row;
                        };
                        encoded.key.store(slot, head, numbers(append.new_key, c.D));
                        encoded.value.store(slot, head, numbers(append.new_value, c.Dv));
                    }
            EXPECT_TRUE(run(encoded, way) == got) << c << " on " << target->name;
            EXPECT_TRUE(accurate(c, expect(encoded), got));
        }
}

}  // namespace
}  // namespace quire::test
