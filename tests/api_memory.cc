// What calls allocate: nothing in a steady state; and what they do where memory runs out.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "src/target.h"
#include "tests/api_allocations.h"
#include "tests/api_call.h"

namespace quire::test {
namespace {

// One sequence of dense keys, long enough to be cut into parts.
class LongCall : public AttentionCall {
public:
    LongCall(int64_t queries, int64_t keys) : AttentionCall(Keys::dense) {
        desc.head_dim = desc.value_head_dim = 32;
        desc.is_causal = 1;
        query = buffers.numbers(QUIRE_F32, {queries, 4, 32});
        key = buffers.numbers(QUIRE_F32, {keys, 2, 32});
        value = buffers.numbers(QUIRE_F32, {keys, 2, 32});
        output = buffers.output(QUIRE_F32, {queries, 4, 32});
        args.attn_mask = args.lse = nullptr;
    }
};

struct Case {
    const char* name;
    std::function<std::unique_ptr<Call>()> make;
};

std::vector<Case> cases() {
    using Keys = AttentionCall::Keys;
    return {
        {"attention over pages", [] { return std::make_unique<AttentionCall>(Keys::pages); }},
        {"attention over int4 rows", [] { return std::make_unique<AttentionCall>(Keys::int4_rows); }},
        {"dense attention", [] { return std::make_unique<AttentionCall>(Keys::dense); }},
        {"long decode", [] { return std::make_unique<LongCall>(1, 3000); }},
        {"long prefill", [] { return std::make_unique<LongCall>(40, 5000); }},
        {"append", [] { return std::make_unique<AppendCall>(); }},
        {"PMX", [] { return std::make_unique<PmxCall>(); }},
        {"merge", [] { return std::make_unique<MergeCall>(); }},
    };
}

bool generates_code() { return std::string(quire_target_name(inline_context())) != "portable"; }

TEST(Allocations, CounterWorks) {
    CountAllocations counted;
    const auto one = std::make_unique<int>(1);
    EXPECT_EQ(counted.count() > 0, one != nullptr);
}

TEST(Allocations, NoneInline) {
    if (!generates_code()) GTEST_SKIP() << "portable is written to be read, and allocates";
    for (const Case& c : cases()) {
        const std::unique_ptr<Call> call = c.make();
        quire_plan* plan = nullptr;
        ASSERT_EQ(call->plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
        ASSERT_EQ(call->run(plan), QUIRE_OK) << quire_last_error();
        {
            CountAllocations counted;
            for (int i = 0; i < 3; ++i) call->run(plan);
            EXPECT_EQ(counted.count(), 0) << c.name;
        }
        quire_plan_destroy(plan);
    }
}

class SpinBarrier {
public:
    explicit SpinBarrier(int count) : count_(count) {}
    static void wait(void* user) {
        SpinBarrier& barrier = *static_cast<SpinBarrier*>(user);
        const int round = barrier.round_;
        if (++barrier.waiting_ == barrier.count_) {
            barrier.waiting_ = 0;
            ++barrier.round_;
        } else {
            while (barrier.round_ == round) std::this_thread::yield();
        }
    }

private:
    const int count_;
    std::atomic<int> waiting_{0}, round_{0};
};

// Prepares and runs in slices again and again; what the last round allocated, all threads together.
int64_t allocated_by_slices(Call& call, const quire_plan* plan) {
    constexpr int kThreads = 3, kRounds = 4;
    SpinBarrier barrier(kThreads);
    quire_run* run = nullptr;
    std::atomic<int64_t> allocated{0};
    const auto slice = [&](int index) {
        for (int round = 0; round < kRounds; ++round) {
            SpinBarrier::wait(&barrier);
            CountAllocations counted;
            if (index == 0) call.prepare(plan, &run);
            SpinBarrier::wait(&barrier);
            quire_run_slice(run, index, kThreads, SpinBarrier::wait, &barrier);
            SpinBarrier::wait(&barrier);
            if (index == 0) quire_run_release(run);
            if (round == kRounds - 1) allocated += counted.count();
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(slice, i);
    for (std::thread& thread : threads) thread.join();
    return allocated;
}

TEST(Allocations, NoneInSlices) {
    if (!generates_code()) GTEST_SKIP() << "portable is written to be read, and allocates";
    for (const Case& c : cases()) {
        const std::unique_ptr<Call> call = c.make();
        quire_plan* plan = nullptr;
        ASSERT_EQ(call->plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
        if (plan != nullptr) {
            EXPECT_EQ(allocated_by_slices(*call, plan), 0) << c.name;
        }
        quire_plan_destroy(plan);
    }
}

// ---- where memory runs out ----

// Whatever fails, it fails with that status; afterwards the same call works.
void expect_out_of_memory(const Case& c, int64_t first, bool all_after, bool* refused) {
    const std::unique_ptr<Call> call = c.make();
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.num_threads = 1;
    quire_context* context = nullptr;
    quire_plan* plan = nullptr;
    quire_status status = QUIRE_OK;
    {
        RefuseAllocations refuse(first, all_after);
        status = quire_context_create(&options, &context);
        if (status == QUIRE_OK) status = call->plan(context, &plan);
        if (status == QUIRE_OK) status = call->run(plan);
        *refused = refuse.refused();
    }
    EXPECT_EQ(status, *refused ? QUIRE_OUT_OF_MEMORY : QUIRE_OK) << quire_last_error();
    if (context == nullptr) {
        EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK);
    }
    if (plan == nullptr) {
        EXPECT_EQ(call->plan(context, &plan), QUIRE_OK) << quire_last_error();
    }
    EXPECT_EQ(call->run(plan), QUIRE_OK) << quire_last_error();
    quire_plan_destroy(plan);
    quire_context_destroy(context);
}

TEST(Allocations, AnyOneMayFail) {
    const Case small[] = {{"attention", [] { return std::make_unique<AttentionCall>(); }},
                          {"PMX", [] { return std::make_unique<PmxCall>(); }}};
    for (const Case& c : small) {
        bool refused = true;
        int64_t first = 0, step = 1;
        for (; refused && !testing::Test::HasFailure(); first += step) {
            SCOPED_TRACE(testing::Message() << c.name << ", allocation " << first);
            expect_out_of_memory(c, first, false, &refused);
            expect_out_of_memory(c, first, true, &refused);
            step = first < 20 ? 1 : 1 + first / 5;  // generation allocates a lot: a sample
        }
        EXPECT_GT(first, 5);
    }
}

}  // namespace
}  // namespace quire::test
