// What is not a number: nowhere from rows that are not live or not seen, everywhere it belongs from those
// that are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/half.h"
#include "tests/support/check.h"

namespace quire::test {
namespace {

const quire_format kFormats[] = {plain_format(QUIRE_F32),
                                 plain_format(QUIRE_F16),
                                 plain_format(QUIRE_BF16),
                                 quantised(QUIRE_INT8, 8, QUIRE_F16),
                                 quantised(QUIRE_INT4, 24, QUIRE_F32),
                                 quantised(QUIRE_INT8, 48, QUIRE_F16),
                                 plain_format(QUIRE_Q8_0),
                                 plain_format(QUIRE_Q5_1),
                                 quantised(QUIRE_INT8, 32, QUIRE_F16),
                                 quantised(QUIRE_INT4, 16, QUIRE_F16),
                                 quantised(QUIRE_INT8_B16, 8, QUIRE_F16),
                                 quantised(QUIRE_INT4_B16, 24, QUIRE_F16)};

// Decode of one token and of two, tiles of one panel and of several, key ranges that are merged, a window, a
// mask.
std::vector<Case> shapes(const quire_format& format) {
    Case c;
    c.D = c.Dv = block_info(format.type) || format.quant_group == 32 ? 64 : 48;
    c.H = 6;
    c.Hk = 2;
    c.key_format = c.value_format = format;
    c.placement = Placement::pages;
    c.page_size = 16;
    c.causal = true;
    std::vector<Case> list;
    for (const std::vector<Lengths>& sequences : {std::vector<Lengths>{{1, 70}, {1, 3}},
                                                  {{2, 130}, {2, 2}},
                                                  {{20, 150}, {9, 9}},
                                                  {{90, 90}},
                                                  {{2, 2100}},
                                                  {{5, 4200}}}) {
        c.sequences = sequences;
        c.type = list.size() % 2 == 0 ? QUIRE_F32 : QUIRE_F16;
        list.push_back(c);
    }
    for (const size_t few_queries : {0, 1, 4, 5}) {
        list.push_back(list[few_queries]);
        list.back().precision = QUIRE_PRECISION_HIGH;
    }
    for (const size_t few_queries : {0, 1}) {
        list.push_back(list[few_queries]);
        list.back().precision = QUIRE_PRECISION_MEDIUM;
    }
    list.push_back(list[5]);
    list.back().precision = QUIRE_PRECISION_MEDIUM;
    list.push_back(list[2]);
    list.back().precision = QUIRE_PRECISION_MEDIUM;
    list.back().sequences = {{9, 40}, {20, 61}};
    c.sequences = {{2, 200}, {30, 200}};
    c.has_window = true;
    c.window_left = 20;
    list.push_back(c);
    c.mask_rank = 3;
    list.push_back(c);
    return list;
}

// Those that a slow emulation can take.
std::vector<Case> small_shapes(const quire_format& format) {
    std::vector<Case> list = shapes(format);
    const auto large = [](const Case& c) { return c.multiplications() > 1e6; };
    list.erase(std::remove_if(list.begin(), list.end(), large), list.end());
    return list;
}

// Live positions: of a random sequence with keys, often one of the last keys, which causal rows see or do
// not.
struct Position {
    int64_t b, t;
    int head;
};
Position draw(const Case& c, Random* random) {
    for (;;) {
        const int64_t b = random->below(c.B()), T = c.sequences[size_t(b)].keys;
        if (T == 0) continue;
        const int64_t last = std::min<int64_t>(T, c.sequences[size_t(b)].queries + 2);
        return {b, random->chance(0.6) ? T - 1 - random->below(last) : random->below(T),
                int(random->below(c.Hk))};
    }
}

int count_nan(const Outcome& outcome) {
    int count = 0;
    for (float x : outcome.output) count += std::isnan(x);
    return count;
}

// What is dead changes no bit.
void check_dead(Case c, const std::vector<const Target*>& on) {
    c.spread = true;
    Tensors poisoned(c);
    c.clean = true;
    Tensors clean(c);
    for (const Target* target : on) {
        Way way;
        way.target = target->name;
        EXPECT_TRUE(run(poisoned, way) == run(clean, way)) << c << " on " << target->name;
    }
}

TEST(AttentionNan, DeadSlots) {
    for (const quire_format& format : kFormats)
        for (const Case& c : shapes(format)) check_dead(c, jit_targets());
}

TEST(AttentionNan, QuickDeadSlots) {
    for (const quire_format& format : {kFormats[0], kFormats[3], kFormats[8], kFormats[9], kFormats[10]})
        for (const Case& c : small_shapes(format)) check_dead(c, {&best_target()});
}

// 15 query rows a kv head, over values that stay in the cache where no scale is negative, of three groups.
TEST(AttentionNan, QuickDeadSlotsOfFewRows) {
    Case c;
    c.D = c.Dv = 96;
    c.H = 6;
    c.Hk = 2;
    c.key_format = c.value_format = quantised(QUIRE_INT8, 32, QUIRE_F16);
    c.precision = QUIRE_PRECISION_MEDIUM;
    c.causal = true;
    c.placement = Placement::pages;
    c.page_size = 16;
    for (const int64_t keys : {5, 37, 130, 262}) {
        c.sequences = {{5, keys}, {5, keys + 3}};
        check_dead(c, jit_targets());
    }
}

// NaN in one live row of keys or values, or Inf in a key: where the definition says, and nowhere else.
TEST(AttentionNan, LiveRows) {
    Random random(31);
    int reached = 0;
    for (const quire_format& format : kFormats) {
        for (const Case& c : shapes(format)) {
            for (int i = 0; i < 12; ++i) {
                Tensors tensors(c);
                const Position at = draw(c, &random);
                CacheSide& side = i % 2 == 0 ? tensors.key : tensors.value;
                side.poison(tensors.slot(at.b, at.t), at.head,
                            i % 4 < 2          ? NAN
                            : i == 2 || i == 3 ? -INFINITY
                                               : INFINITY);
                SCOPED_TRACE("poisoned " + std::string(i % 2 == 0 ? "key " : "value ") +
                             std::to_string(at.t) + " of sequence " + std::to_string(at.b) + ", kv head " +
                             std::to_string(at.head));
                check(tensors, jit_targets());
                reached += count_nan(run(tensors, Way())) > 0;
            }
        }
    }
    EXPECT_GT(reached, 100);  // the test poisons rows that matter
}

TEST(AttentionNan, QuickLiveRows) {
    Random random(32);
    for (const Case& c : small_shapes(kFormats[3])) {
        for (int i = 0; i < 2; ++i) {
            Tensors tensors(c);
            const Position at = draw(c, &random);
            (i == 0 ? tensors.key : tensors.value).poison(tensors.slot(at.b, at.t), at.head, NAN);
            check(tensors, {&best_target()});
        }
    }
}

// A query that is NaN or Inf harms no other row, though it shares vectors with them.
TEST(AttentionNan, Query) {
    Random random(33);
    for (const quire_format& format : kFormats) {
        for (const Case& c : shapes(format)) {
            Tensors tensors(c);
            const int64_t token = random.below(c.n());
            const int h = int(random.below(c.H));
            store_number(c.type, element(tensors.query_view, token, h), random.below(c.D),
                         random.chance(0.5) ? NAN : INFINITY);
            check(tensors, jit_targets());
        }
    }
}

// Both of decode and of tiles at `medium`, with 8-bit products where the target has them.
TEST(AttentionNan, QuickMedium) {
    Random random(35);
    for (const quire_format& format :
         {quantised(QUIRE_INT8, 32, QUIRE_F32), plain_format(QUIRE_Q4_0), plain_format(QUIRE_IQ4_NL),
          plain_format(QUIRE_Q5_0), plain_format(QUIRE_Q4_1), quantised(QUIRE_INT4, 32, QUIRE_F16)}) {
        for (const bool decodes : {false, true}) {
            Case c = shapes(format)[2];
            c.D = c.Dv = 64;
            c.precision = QUIRE_PRECISION_MEDIUM;
            c.sequences = {{9, 40}, {20, 61}};
            if (decodes) c.sequences = {{1, 40}, {2, 161}};
            for (const float wrong : {NAN, INFINITY, -INFINITY}) {
                Tensors keys(c), queries(c);
                const Position at = draw(c, &random);
                keys.key.poison(keys.slot(at.b, at.t), at.head, wrong);
                check(keys, {&best_target()});
                const int h = int(random.below(c.H)), d = int(random.below(c.D));
                store_number(c.type, element(queries.query_view, random.below(c.n()), h), d, wrong);
                check(queries, {&best_target()});
            }
        }
    }
}

// A NaN of the mask reaches its row, if the key is seen; of a key that the mask hides nothing counts.
TEST(AttentionNan, Mask) {
    Random random(34);
    for (const quire_format& format : kFormats) {
        const Case c = shapes(format).back();
        for (int i = 0; i < 20; ++i) {
            Tensors tensors(c);
            const Position at = draw(c, &random);
            const int64_t token = tensors.first_token(at.b) + random.below(c.sequences[size_t(at.b)].queries);
            const int h = int(random.below(c.H));
            const float values[] = {NAN, INFINITY, -INFINITY};
            tensors.set_mask(token, h, at.b, at.t, values[i % 3]);
            if (i % 3 == 2)
                for (CacheSide* side : {&tensors.key, &tensors.value})
                    side->poison(tensors.slot(at.b, at.t), h / c.group(), NAN);
            check(tensors, jit_targets());
        }
    }
}

// A row that sees nothing: zeros and -inf, or the sink.
TEST(AttentionNan, QuickBlindRows) {
    for (const bool sinks : {false, true}) {
        for (const std::vector<Lengths>& sequences :
             {std::vector<Lengths>{{1, 70}}, {{20, 70}}, {{2, 2100}}, {{9, 4200}}, {{1, 0}, {30, 0}}}) {
            Case c;
            c.D = c.Dv = 40;
            c.H = c.Hk = 2;
            c.sequences = sequences;
            c.sinks = sinks;
            c.mask_rank = c.all_keys() > 0 ? 2 : 0;
            Tensors tensors(c);
            for (int64_t token = 0; token < c.n(); ++token)
                for (int64_t t = 0; t < c.all_keys(); ++t) tensors.set_mask(token, 0, 0, t, -INFINITY);
            for (const Target* target : targets()) {
                Way way;
                way.target = target->name;
                const Outcome got = run(tensors, way);
                for (float x : got.output) ASSERT_EQ(float_bits(x), 0u) << c << " on " << target->name;
                for (size_t i = 0; i < got.lse.size(); ++i) {
                    const float sink = sinks ? tensors.sink(int(i % size_t(c.H))) : -INFINITY;
                    if (sinks)
                        ASSERT_FLOAT_EQ(got.lse[i], sink) << c << " on " << target->name;
                    else
                        ASSERT_EQ(got.lse[i], sink) << c << " on " << target->name;
                }
            }
        }
    }
}

}  // namespace
}  // namespace quire::test
