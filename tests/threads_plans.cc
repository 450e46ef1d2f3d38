// Contexts and plans used from many threads at once.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "tests/api_call.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// Runs `work(0)` to `work(count - 1)`, each in a thread of its own, begun together.
void in_threads(int count, const std::function<void(int)>& work) {
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
            ++ready;
            while (ready < count) std::this_thread::yield();
            work(i);
        });
    for (std::thread& thread : threads) thread.join();
}

quire_context* context_with(int threads, int64_t code_memory = 0) {
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.num_threads = threads;
    options.code_memory_limit = code_memory;
    quire_context* context = nullptr;
    EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    return context;
}

class Threads : public testing::TestWithParam<int> {};  // of quire's own

TEST_P(Threads, OnePlan) {
    const std::vector<uint8_t> expected = PmxCall().result(inline_context());
    quire_context* context = context_with(GetParam());
    quire_plan* plan = nullptr;
    ASSERT_EQ(PmxCall().plan(context, &plan), QUIRE_OK);
    in_threads(8, [&](int) {
        for (int i = 0; i < 20; ++i) {
            PmxCall call;
            EXPECT_EQ(call.run(plan), QUIRE_OK) << quire_last_error();
            EXPECT_EQ(call.buffers.written(), expected);
        }
    });
    quire_plan_destroy(plan);
    quire_context_destroy(context);
}

TEST_P(Threads, ManyPlansOfOneContext) {
    const std::vector<uint8_t> attention = AttentionCall().result(inline_context());
    const std::vector<uint8_t> append = AppendCall().result(inline_context());
    quire_context* context = context_with(GetParam(), 64 * 1024);  // less than they need: code comes and goes
    in_threads(6, [&](int thread) {
        for (int i = 0; i < 5; ++i) {
            if ((thread + i) % 2 == 0) {
                EXPECT_EQ(AttentionCall().result(context), attention);
            } else {
                EXPECT_EQ(AppendCall().result(context), append);
            }
        }
    });
    quire_context_destroy(context);
}

TEST_P(Threads, ContextDestroyedWhileOthersRun) {
    const std::vector<uint8_t> expected = PmxCall().result(inline_context());
    for (int round = 0; round < 10; ++round) {
        quire_context* context = context_with(GetParam());
        std::vector<quire_plan*> plans(4);
        for (quire_plan*& plan : plans) ASSERT_EQ(PmxCall().plan(context, &plan), QUIRE_OK);
        in_threads(5, [&](int thread) {
            if (thread == 4) return quire_context_destroy(context);
            PmxCall call;
            EXPECT_EQ(call.run(plans[size_t(thread)]), QUIRE_OK) << quire_last_error();
            EXPECT_EQ(call.buffers.written(), expected);
            quire_plan_destroy(plans[size_t(thread)]);
        });
    }
}

INSTANTIATE_TEST_SUITE_P(, Threads, testing::Values(1, 2),
                         [](const auto& threads) { return threads.param == 1 ? "Inline" : "OwnThreads"; });

TEST(ThreadsOfCallers, ContextsComeAndGo) {
    const std::vector<uint8_t> expected = AttentionCall().result(inline_context());
    in_threads(4, [&](int thread) {
        for (int i = 0; i < 5; ++i) {
            quire_context* context = context_with(1 + thread % 2);
            EXPECT_EQ(AttentionCall().result(context), expected);
            quire_context_destroy(context);
        }
    });
}

TEST(ThreadsOfCallers, DefaultContext) {
    const std::vector<uint8_t> expected = AttentionCall().result(inline_context());
    in_threads(8, [&](int) {
        EXPECT_STREQ(quire_target_name(nullptr), quire_target_name(inline_context()));
        EXPECT_EQ(AttentionCall().result(nullptr), expected);
    });
}

// Several prepared runs of one plan at a time, each on threads of its own.
TEST(ThreadsOfCallers, SlicesOfManyRuns) {
    const std::vector<uint8_t> expected = PmxCall().result(inline_context());
    quire_plan* plan = nullptr;
    ASSERT_EQ(PmxCall().plan(inline_context(), &plan), QUIRE_OK);
    in_threads(3, [&](int thread) {
        for (int count = 1; count <= 5; ++count) {
            PmxCall call;
            quire_run* run = nullptr;
            ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK) << quire_last_error();
            run_slices(count + thread, run);
            quire_run_release(run);
            EXPECT_EQ(call.buffers.written(), expected);
        }
    });
    quire_plan_destroy(plan);
}

// Errors of one thread do not reach the calls of another.
TEST(ThreadsOfCallers, ErrorsBesideCalls) {
    const std::vector<uint8_t> expected = AttentionCall().result(inline_context());
    quire_plan* plan = nullptr;
    ASSERT_EQ(AttentionCall().plan(inline_context(), &plan), QUIRE_OK);
    in_threads(4, [&](int thread) {
        for (int i = 0; i < 50; ++i) {
            AttentionCall call;
            if (thread % 2 == 0) {
                call.args.decoding_batches = thread + 10;
                EXPECT_EQ(call.run(plan), QUIRE_INVALID_ARGUMENT);
                EXPECT_EQ(quire_last_error(),
                          "decoding_batches is " + std::to_string(thread + 10) + ": must be 0 to 2");
            } else {
                EXPECT_EQ(call.run(plan), QUIRE_OK);
                EXPECT_EQ(call.buffers.written(), expected);
            }
        }
    });
    quire_plan_destroy(plan);
}

}  // namespace
}  // namespace quire::test
