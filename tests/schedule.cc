// How calls are cut into work items: every query row and every key that it sees is in one of them, and few
// keys that it does not see.
#include "src/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "jit/code_cache.h"
#include "src/plan.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

AttentionSpec usual_spec(const quire_format& format) {
    AttentionSpec spec{};
    spec.H = 8;
    spec.Hk = 2;
    spec.D = spec.Dv = 64;
    spec.key_format = spec.value_format = format;
    spec.page_size = 128;
    spec.type = QUIRE_F32;
    spec.scale = 0.125f;
    spec.causal = true;
    spec.window_left = spec.window_right = -1;
    return spec;
}

// Of one sequence. Nothing is computed: there is no data.
struct Cut {
    Cut(const AttentionSpec& spec, int64_t queries, int64_t keys, jit::CodeCache& cache) {
        std::string notes;
        const Status status = make_attention_plan(spec, best_target(), cache, &plan, &notes);
        EXPECT_TRUE(status.ok()) << status.message();
        problem.spec = &plan.spec;
        problem.B = 1;
        problem.n = problem.queries_at.uniform = queries;
        problem.keys_at.uniform = keys;
        schedule.build(plan, problem);
    }

    // Those of kv head 0, by their rows, then their keys.
    std::vector<Item> items() const {
        std::vector<Item> list;
        for (int64_t i = 0; i < schedule.items(); ++i)
            if (const Item item = schedule.items(i, i + 1).first; item.kv_head == 0) list.push_back(item);
        std::sort(list.begin(), list.end(), [](const Item& a, const Item& b) {
            return a.row_begin != b.row_begin ? a.row_begin < b.row_begin : a.part < b.part;
        });
        return list;
    }

    AttentionPlan plan;
    AttentionProblem problem;
    Schedule schedule;
};

// Items of the same rows begin where the one before ends, and take hardly more than these see.
void check_keys(const Cut& cut, const std::vector<Item>& items) {
    const int group = cut.plan.spec.group();
    for (size_t i = 0, next; i < items.size(); i = next) {
        for (next = i + 1; next < items.size() && items[next].row_begin == items[i].row_begin; ++next)
            EXPECT_EQ(items[next].key_begin, items[next - 1].key_end);
        KeyRange any, all;
        cut.problem.visible(0, items[i].row_begin / group, (items[i].row_end - 1) / group, &any, &all);
        EXPECT_LE(items[i].key_begin, any.begin);
        EXPECT_GT(items[i].key_begin + jit::kKeyPadding, any.begin);
        EXPECT_EQ(items[next - 1].key_end, any.end);
    }
}

const std::vector<quire_format> kFormats = {{QUIRE_F32, 0, QUIRE_NONE}, {QUIRE_INT8, 32, QUIRE_F16}};

TEST(Schedule, QuickKeysOfWindows) {
    jit::CodeCache cache(size_t(1) << 30);
    for (const quire_format& format : kFormats)
        for (const int64_t window : {-1, 100, 511, 3000})
            for (const int64_t queries : {1, 2, 4, 5, 8, 17, 200})
                for (const int64_t keys : {600, 4000, 4096, 9001}) {
                    SCOPED_TRACE(testing::Message()
                                 << "window " << window << ", queries " << queries << ", keys " << keys);
                    AttentionSpec spec = usual_spec(format);
                    spec.window_left = window;
                    const Cut cut(spec, queries, keys, cache);
                    check_keys(cut, cut.items());
                }
}

// Whatever their number, and the block that has less than the others is the last.
TEST(Schedule, QuickRowsOfBlocks) {
    jit::CodeCache cache(size_t(1) << 30);
    for (const int64_t queries : {1, 96, 97, 100, 191, 192, 193, 500}) {
        const Cut cut(usual_spec(kFormats[0]), queries, 4000, cache);
        const std::vector<Item> items = cut.items();
        int64_t row = 0;
        for (const Item& item : items) {
            EXPECT_TRUE(item.row_begin == row || item.part > 0) << queries;
            row = item.row_end;
            EXPECT_LE(items[0].row_end, item.row_end - item.row_begin) << queries;
        }
        EXPECT_EQ(row, queries * cut.plan.spec.group());
        const int64_t last = cut.schedule.items() - 1;
        EXPECT_EQ(cut.schedule.items(last, last + 1).first.row_begin, 0);
    }
}

// What is run together from `begin` on is what it is one by one: of each head one part or more, with the keys
// and states of all.
void expect_items(const Schedule& schedule, int64_t begin, int64_t count) {
    const HeadItems items = schedule.items(begin, begin + count);
    ASSERT_EQ(count % items.count, 0);
    for (int h = 0; h < items.count; ++h) {
        Item item = items[h];
        int64_t key_end = 0;
        for (int64_t i = begin + h; i < begin + count; i += items.count, item.next_part()) {
            const Item one = schedule.items(i, i + 1).first;
            EXPECT_EQ(item.b, one.b);
            EXPECT_EQ(item.kv_head, one.kv_head);
            EXPECT_EQ(item.row_begin, one.row_begin);
            EXPECT_EQ(item.row_end, one.row_end);
            EXPECT_EQ(item.part, one.part);
            EXPECT_EQ(item.key_begin, one.key_begin);
            EXPECT_EQ(item.part_end(), one.key_end);
            EXPECT_EQ(item.state, one.state);
            EXPECT_EQ(item.merge, one.merge);
            key_end = one.key_end;
        }
        EXPECT_EQ(item.key_end, key_end);
    }
}

// Heads whose rows lie between each other's are run together.
TEST(Schedule, QuickHeadsTogether) {
    const bool large = has_large_l2();
    jit::CodeCache cache(size_t(1) << 30);
    AttentionSpec spec = usual_spec(kFormats[1]);
    spec.H = spec.Hk = 40;
    for (const bool interleaved : {false, true})
        for (const bool assumed : {false, true}) {
            SCOPED_TRACE(testing::Message() << interleaved << assumed);
            assume_large_l2(assumed);
            Cut cut(spec, 1, 1500, cache);
            cut.problem.cache.key.row_stride = interleaved ? 40 * 64 : 64;
            cut.problem.cache.key.head_stride = interleaved ? 64 : 4096 * 64;
            cut.schedule.build(cut.plan, cut.problem);
            int most = 0;
            for (int64_t i = 0, count; i < cut.schedule.items(); i += count) {
                count = cut.schedule.together(i, cut.schedule.items());
                most = std::max(most, cut.schedule.items(i, i + count).count);
                expect_items(cut.schedule, i, count);
            }
            EXPECT_EQ(most > 1, interleaved && assumed && best_target().jit());
        }
    assume_large_l2(large);
}

// All parts of a head before the next head where heads lie apart, of all sequences; four of 512 keys where a
// page holds all heads; no item is left out or comes twice. Elsewhere, and where blocks of rows differ in
// length, heads follow each other.
TEST(Schedule, QuickOrderOfHeads) {
    if (!best_target().jit()) GTEST_SKIP() << "NO JIT: its items have no parts";
    jit::CodeCache cache(size_t(1) << 30);
    const AttentionSpec spec = usual_spec(kFormats[1]);
    constexpr int64_t kRow = 64, kSlots = 8192;
    struct Case {
        int64_t queries, row_stride, head_stride;
        int64_t follow;  // of a head; 0: all
    };
    for (const Case& c : {Case{1, kRow, kSlots * kRow, 0}, Case{1, kRow, -kSlots * kRow, 0},
                          Case{1, kRow, spec.page_size * kRow, 4}, Case{1, 2 * kRow, kRow, 1},
                          Case{500, kRow, kSlots * kRow, 1}}) {
        SCOPED_TRACE(testing::Message() << c.queries << ' ' << c.row_stride << ' ' << c.head_stride);
        Cut cut(spec, c.queries, 4000, cache);
        cut.problem.B = 3;
        cut.problem.n = 3 * c.queries;
        cut.problem.cache.page_size = spec.page_size;
        cut.problem.cache.key.row_stride = c.row_stride;
        cut.problem.cache.key.head_stride = c.head_stride;
        cut.schedule.build(cut.plan, cut.problem);
        int64_t changes = 0, last = -1;
        std::set<std::tuple<int64_t, int, int64_t, int64_t>> seen;
        std::set<int64_t> states;
        for (int64_t i = 0; i < cut.schedule.items(); ++i) {
            const Item item = cut.schedule.items(i, i + 1).first;
            changes += item.kv_head != last;
            last = item.kv_head;
            EXPECT_TRUE(seen.insert({item.b, item.kv_head, item.row_begin, item.part}).second);
            EXPECT_TRUE(item.parts == 1 || states.insert(item.state).second);
        }
        EXPECT_EQ(seen.size(), size_t(cut.schedule.items()));
        EXPECT_GT(cut.schedule.items(), 2 * spec.Hk);
        EXPECT_EQ(changes, c.follow ? cut.schedule.items() / c.follow : spec.Hk);
    }
}

// Parts of a head, however many threads take at a time. They take the rows of parts whole where they can.
TEST(Schedule, QuickPartsInARow) {
    if (!best_target().jit()) GTEST_SKIP() << "NO JIT: its items have no parts";
    jit::CodeCache cache(size_t(1) << 30);
    constexpr int64_t kRow = 64, kSlots = 8192;
    const UnalignedInt64 starts[] = {0, 4000, 4700, 5000, 14001};  // of 8 parts, 2, 1 and 18
    for (const bool apart : {false, true})
        for (const int64_t most : {1, 2, 3, 5, 8, 100}) {
            SCOPED_TRACE(testing::Message() << apart << ' ' << most);
            Cut cut(usual_spec(kFormats[1]), 1, 4000, cache);
            cut.problem.B = cut.problem.n = 4;
            cut.problem.keys_at.given = {starts, 1, 0};
            cut.problem.cache.page_size = cut.plan.spec.page_size;
            cut.problem.cache.key.row_stride = kRow;
            cut.problem.cache.key.head_stride = (apart ? kSlots : cut.plan.spec.page_size) * kRow;
            cut.schedule.build(cut.plan, cut.problem);
            const Schedule& schedule = cut.schedule;
            int64_t whole = 0;
            for (int64_t begin = 0, end; begin < schedule.items(); begin = end) {
                end = schedule.stop(begin, std::min(begin + most, schedule.items()));
                ASSERT_GT(end, begin);
                ASSERT_LE(end, begin + most);
                for (int64_t i = begin, count; i < end; i += count) {
                    count = schedule.together(i, end);
                    expect_items(schedule, i, count);
                    whole += schedule.items(i, i + count).first.parts == count;
                }
            }
            // Of each of the two heads; where a page holds both, rows have four parts.
            const int64_t fit = most >= 18 ? 4 : most >= 8 ? 3 : most >= 2 ? 2 : 1;
            EXPECT_EQ(whole, 2 * (apart ? fit : std::min<int64_t>(fit, 2)));
        }
}

// Beside sequences whose parts are run in a row there are some whose items never are, of one kv head, too.
TEST(Schedule, QuickItemsOfTilesAreRunOneByOne) {
    if (!best_target().jit()) GTEST_SKIP() << "NO JIT: its items have no parts";
    jit::CodeCache cache(size_t(1) << 30);
    const UnalignedInt64 starts[] = {0, 1, 501, 514};  // decode, several blocks of rows, one
    for (const int kv_heads : {1, 2})
        for (const int64_t head_stride : {64, 128 * 64, 8192 * 64}) {
            SCOPED_TRACE(testing::Message() << kv_heads << ' ' << head_stride);
            AttentionSpec spec = usual_spec(kFormats[1]);
            spec.Hk = kv_heads;
            spec.H = 4 * kv_heads;
            Cut cut(spec, 1, 9000, cache);
            cut.problem.B = 3;
            cut.problem.n = 514;
            cut.problem.queries_at.given = {starts, 1, 0};
            cut.problem.cache.page_size = spec.page_size;
            cut.problem.cache.key.row_stride = head_stride == 64 ? kv_heads * 64 : 64;
            cut.problem.cache.key.head_stride = head_stride;
            cut.schedule.build(cut.plan, cut.problem);
            const Schedule& schedule = cut.schedule;
            int64_t most = 0;
            for (int64_t i = 0, count; i < schedule.items(); i += count) {
                count = schedule.together(i, schedule.items());
                expect_items(schedule, i, count);
                EXPECT_TRUE(count == 1 || schedule.items(i, i + 1).first.b == 0);
                most = std::max(most, count);
            }
            EXPECT_GT(most, 1);
        }
}

// One kv head's vector of query rows is many threads' work, whether decode has it or tiles.
TEST(Schedule, QuickPartsOfOneVector) {
    if (!best_target().jit()) GTEST_SKIP() << "NO JIT: its items have no parts";
    jit::CodeCache cache(size_t(1) << 30);
    for (const quire_type type : {QUIRE_F32, QUIRE_BF16})
        for (const quire_precision precision : {QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_MEDIUM}) {
            AttentionSpec spec = usual_spec(plain_format(type));
            spec.Hk = 1;
            spec.H = best_target().lanes();
            spec.precision = precision;
            EXPECT_EQ(Cut(spec, 1, 4096, cache).items().size(), 8u);
        }
}

// When the last of so many threads has ended, if a key of any item takes as long: as Run::share has them take
// items.
int64_t last_end(const Schedule& schedule, int threads) {
    struct Thread {
        int64_t time = 0, begin = 0, end = 0;  // begin: of what it has taken and not begun
    };
    int64_t next = 0, last = 0;
    const auto take = [&](Thread* t) {
        t->begin = next;
        next = t->end = next < schedule.items() ? schedule.take_end(next, threads) : next;
    };
    std::vector<Thread> all(static_cast<size_t>(threads));
    while (true) {  // the first that is free
        const auto t = std::min_element(all.begin(), all.end(),
                                        [](const Thread& a, const Thread& b) { return a.time < b.time; });
        if (t->begin == t->end) take(&*t);
        if (t->begin == t->end) return last;
        const int64_t count = schedule.together(t->begin, t->end);
        const HeadItems items = schedule.items(t->begin, t->begin + count);
        t->begin += count;
        t->time += items.count * (items.first.key_end - items.first.key_begin);
        last = std::max(last, t->time);
        if (t->begin == t->end && schedule.items() - next >= 4 * threads) take(&*t);
    }
}

// Decode is cut so that 2 or 64 threads end together, which changes no bit.
TEST(Schedule, QuickThreadsEndTogether) {
    if (!best_target().jit()) GTEST_SKIP() << "NO JIT: its items have no parts";
    jit::CodeCache cache(size_t(1) << 30);
    struct Shape {
        int heads, kv_heads;
        int64_t batch, keys;
    };
    for (const auto& [heads, kv_heads, batch, keys] : {Shape{32, 8, 1, 32768},
                                                       {8, 8, 1, 32768},
                                                       {32, 8, 16, 2048},
                                                       {4, 1, 1, 32768},
                                                       {16, 1, 1, 32768},
                                                       {64, 8, 1, 131072},
                                                       {9, 3, 1, 32768}})
        for (const bool apart : {false, true}) {
            AttentionSpec spec = usual_spec(kFormats[1]);
            spec.H = heads, spec.Hk = kv_heads;
            Cut cut(spec, 1, keys, cache);
            if (heads / kv_heads > cut.plan.decode_rows) continue;  // tiles take longer parts
            cut.problem.B = cut.problem.n = batch;
            cut.problem.cache.page_size = spec.page_size;
            cut.problem.cache.key.row_stride = apart ? 64 : kv_heads * 64;
            cut.problem.cache.key.head_stride = apart ? batch * keys * 64 : 64;
            cut.schedule.build(cut.plan, cut.problem);
            const int64_t whole = batch * kv_heads * keys;
            for (const int threads : {1, 2, 3, 4, 8, 16, 32, 64}) {
                const int64_t even = whole / threads, end = last_end(cut.schedule, threads);
                EXPECT_GE(end, even);
                const double most = threads == 3 ? 1.1 : 1.07;  // some have an item more than others
                EXPECT_LE(double(end), most * double(even))
                    << heads << "/" << kv_heads << ", " << batch << " x " << keys << ", " << threads
                    << " threads, apart " << apart;
            }
        }
}

// A sequence of several blocks of rows comes before those of one, whose items keep their order.
TEST(Schedule, QuickLongSequencesFirst) {
    if (!best_target().jit()) GTEST_SKIP() << "NO JIT: every sequence has a block for each query";
    jit::CodeCache cache(size_t(1) << 30);
    using Place = std::pair<int64_t, int>;  // sequence, kv head
    constexpr int64_t kSlots = 8192;
    const auto is_long = [](const Place& at) { return at.first == 1; };
    const auto by_sequence = [](const Place& a, const Place& b) { return a.first < b.first; };
    const auto by_head = [](const Place& a, const Place& b) { return a.second < b.second; };
    const UnalignedInt64 starts[] = {0, 1, 501, 502};
    for (const bool apart : {false, true}) {
        Cut cut(usual_spec(kFormats[1]), 1, 4000, cache);
        cut.problem.B = 3;
        cut.problem.n = 502;
        cut.problem.queries_at.given = {starts, 1, 0};
        cut.problem.cache.page_size = cut.plan.spec.page_size;
        cut.problem.cache.key.row_stride = 64;
        cut.problem.cache.key.head_stride = apart ? kSlots * 64 : 64;
        cut.schedule.build(cut.plan, cut.problem);
        std::vector<Place> order;
        for (int64_t i = 0; i < cut.schedule.items(); ++i) {
            const Item item = cut.schedule.items(i, i + 1).first;
            order.emplace_back(item.b, item.kv_head);
            if (item.parts > 1) {
                EXPECT_EQ(cut.schedule.merge(item.merge).b, item.b);
                EXPECT_EQ(cut.schedule.merge(item.merge).kv_head, item.kv_head);
            }
        }
        const auto rest = std::find_if_not(order.begin(), order.end(), is_long);
        EXPECT_GT(rest - order.begin(), 2);
        EXPECT_TRUE(std::none_of(rest, order.end(), is_long));
        EXPECT_EQ(std::is_sorted(rest, order.end(), by_head), apart);
        EXPECT_EQ(std::is_sorted(rest, order.end(), by_sequence), !apart);
    }
}

}  // namespace
}  // namespace quire::test
