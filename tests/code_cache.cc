// The code cache: once per key, outside the lock, retryable after a failure, bounded.
#include "jit/code_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <stdexcept>
#include <thread>

#include "tests/code_maps.h"
#include "tests/code_refuse.h"

namespace quire::test {
namespace {

using jit::Code;
using jit::CodeCache;
using CodePtr = std::shared_ptr<const Code>;
using Bytes = std::vector<uint8_t>;

constexpr size_t kPage = 4096;
constexpr size_t kNoLimit = size_t(1) << 30;

Status one_page(Bytes* bytes) {
    *bytes = {0xc3};
    return {};
}

CodePtr get(CodeCache& cache, const std::string& name) {
    CodePtr code;
    const Status status = cache.get(name, one_page, &code);
    EXPECT_TRUE(status.ok()) << status.message();
    return code;
}

bool holds(CodeCache& cache, const std::string& name) {
    bool generated = false;
    CodePtr code;
    EXPECT_TRUE(cache
                    .get(
                        name, [&](Bytes* bytes) { return generated = true, one_page(bytes); }, &code)
                    .ok());
    return !generated;
}

// Opens once; waiting ends the process after a time in which nothing that works is still waiting.
class Gate {
public:
    void open() {
        std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        opened_.notify_all();
    }
    void wait(const char* what) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (opened_.wait_for(lock, std::chrono::seconds(60), [&] { return open_; })) return;
        std::fprintf(stderr, "waited 60 s for %s\n", what);
        std::abort();
    }

private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = false;
};

void short_while() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

TEST(CodeCache, GeneratesOnceUnderConcurrentFirstCalls) {
    CodeCache cache(kNoLimit);
    std::atomic<int> generated{0};
    std::vector<CodePtr> got(16);
    std::vector<std::thread> threads;
    for (CodePtr& code : got)
        threads.emplace_back([&] {
            const Status status = cache.get(
                "key",
                [&](Bytes* bytes) {
                    ++generated;
                    short_while();  // so that the others come while it is being made
                    return one_page(bytes);
                },
                &code);
            EXPECT_TRUE(status.ok()) << status.message();
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(generated, 1);
    for (const CodePtr& code : got) EXPECT_EQ(code, got[0]);
    EXPECT_EQ(cache.size(), 1u);
    EXPECT_EQ(cache.bytes(), kPage);
}

TEST(CodeCache, DifferentKeysGenerateConcurrently) {
    CodeCache cache(kNoLimit);
    Gate first_is_in, second_is_in;
    const auto meet = [&](Gate* mine, Gate* other) {
        return [mine, other](Bytes* bytes) {
            mine->open();
            other->wait("the other generator, which must be able to run beside this one");
            return one_page(bytes);
        };
    };
    CodePtr a, b;
    std::thread thread([&] { EXPECT_TRUE(cache.get("a", meet(&first_is_in, &second_is_in), &a).ok()); });
    EXPECT_TRUE(cache.get("b", meet(&second_is_in, &first_is_in), &b).ok());
    thread.join();
    EXPECT_NE(a, b);
}

TEST(CodeCache, OtherKeysAreServedWhileOneIsGenerated) {
    CodeCache cache(kNoLimit);
    const CodePtr ready = get(cache, "ready");
    CodePtr slow;
    const auto generate = [&](Bytes* bytes) {
        EXPECT_EQ(get(cache, "ready"), ready);
        return one_page(bytes);
    };
    EXPECT_TRUE(cache.get("slow", generate, &slow).ok());
}

// ---- failure ----

struct Failure {
    const char* name;
    Status (*generate)(Bytes*);
    quire_status status;
    const char* message;
};

const Failure kFailures[] = {
    {"declines", [](Bytes*) { return unsupported("no such kernel"); }, QUIRE_UNSUPPORTED, "no such kernel"},
    {"throws", [](Bytes*) -> Status { throw std::runtime_error("no register for acc"); }, QUIRE_INTERNAL,
     "generating key: no register for acc"},
    {"throws bad_alloc", [](Bytes*) -> Status { throw std::bad_alloc(); }, QUIRE_OUT_OF_MEMORY,
     "out of memory while generating key"},
    {"throws no exception", [](Bytes*) -> Status { throw 1; }, QUIRE_INTERNAL,
     "generating key: unknown exception"},
};

TEST(CodeCache, FailureLeavesNothingAndCanBeRetried) {
    for (const Failure& failure : kFailures) {
        SCOPED_TRACE(failure.name);
        CodeCache cache(kNoLimit);
        CodePtr code;
        for (int time = 0; time < 2; ++time) {
            const Status status = cache.get("key", failure.generate, &code);
            EXPECT_EQ(status.code(), failure.status);
            EXPECT_EQ(status.message(), failure.message);
            EXPECT_EQ(code, nullptr);
            EXPECT_EQ(cache.size(), 0u);
            EXPECT_EQ(cache.bytes(), 0u);
        }
        EXPECT_NE(get(cache, "key"), nullptr);
    }
}

TEST(CodeCache, WaitersTryAfterAFailure) {
    for (const Failure& failure : kFailures) {
        SCOPED_TRACE(failure.name);
        CodeCache cache(kNoLimit);
        Gate in_first;
        std::atomic<int> generated{0}, failed{0};
        std::vector<CodePtr> got(4);
        const auto ask = [&](CodePtr* code) {
            const Status status = cache.get(
                "key",
                [&](Bytes* bytes) {
                    if (generated++ > 0) return one_page(bytes);
                    in_first.open();
                    short_while();  // the others begin to wait
                    return failure.generate(bytes);
                },
                code);
            failed += !status.ok();
            EXPECT_EQ(status.ok(), *code != nullptr);
        };
        std::vector<std::thread> threads;
        threads.emplace_back(ask, &got[0]);
        in_first.wait("the first generator");
        for (size_t i = 1; i < got.size(); ++i) threads.emplace_back(ask, &got[i]);
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(failed, 1);
        EXPECT_EQ(generated, 2);
        for (size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i], got[1]);
        EXPECT_EQ(cache.size(), 1u);
    }
}

TEST(CodeCache, RefusedPublicationLeavesNothing) {
    CodeCache cache(kNoLimit);
    {
        Refuse all(2);
        CodePtr code;
        EXPECT_EQ(cache.get("key", one_page, &code).code(), QUIRE_UNSUPPORTED);
    }
    EXPECT_EQ(cache.size(), 0u);
    EXPECT_NE(get(cache, "key"), nullptr);
}

// ---- eviction ----

TEST(CodeCache, StaysUnderItsLimit) {
    CodeCache cache(3 * kPage);
    for (int i = 0; i < 20; ++i) {
        get(cache, std::to_string(i));
        EXPECT_LE(cache.bytes(), 3 * kPage);
        EXPECT_LE(cache.size(), 3u);
    }
    EXPECT_EQ(cache.size(), 3u);
}

TEST(CodeCache, DropsTheLeastRecentlyUsed) {
    CodeCache cache(2 * kPage);
    get(cache, "a");
    get(cache, "b");
    get(cache, "a");
    get(cache, "c");
    EXPECT_TRUE(holds(cache, "a"));
    EXPECT_FALSE(holds(cache, "b"));
}

TEST(CodeCache, KeepsWhatIsInUse) {
    CodeCache cache(2 * kPage);
    std::vector<CodePtr> held;
    for (int i = 0; i < 5; ++i) held.push_back(get(cache, std::to_string(i)));
    EXPECT_EQ(cache.bytes(), 5 * kPage);  // nothing could be dropped
    for (int i = 0; i < 5; ++i) EXPECT_EQ(get(cache, std::to_string(i)), held[size_t(i)]);
    held.resize(1);
    get(cache, "one more");
    EXPECT_LE(cache.bytes(), 2 * kPage);
    EXPECT_EQ(get(cache, "0"), held[0]);
}

TEST(CodeCache, UnmapsWhatItDrops) {
    CodeCache cache(kPage);
    const CodePtr kept = get(cache, "kept");
    const void* dropped = get(cache, "dropped")->memory.entry();
    EXPECT_EQ(rights_at(dropped), "r-xp");
    CodePtr next;  // takes a place of its own before the other's is free
    EXPECT_TRUE(cache.get("next", one_page, &next).ok());
    EXPECT_NE(rights_at(dropped), "r-xp");
    EXPECT_EQ(rights_at(kept->memory.entry()), "r-xp");
}

TEST(CodeCache, HeldCodeOutlivesTheCache) {
    CodePtr code;
    {
        CodeCache cache(kNoLimit);
        code = get(cache, "a");
    }
    EXPECT_EQ(rights_at(code->memory.entry()), "r-xp");
    code->as<void (*)()>()();
    const void* entry = code->memory.entry();
    code.reset();
    EXPECT_NE(rights_at(entry), "r-xp");
}

// Many threads, few names, some failing, more code than fits: nothing is lost, nothing hangs.
TEST(CodeCache, Storm) {
    CodeCache cache(4 * kPage);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t)
        threads.emplace_back([&cache, t] {
            unsigned state = t + 1;
            for (int i = 0; i < 300; ++i) {
                state = state * 1664525 + 1013904223;
                const unsigned name = state >> 28, fails = state >> 16 & 7;
                CodePtr code;
                const Status status = cache.get(
                    std::to_string(name),
                    [&](Bytes* bytes) { return fails ? one_page(bytes) : unsupported("no"); }, &code);
                EXPECT_EQ(status.ok(), code != nullptr);
                if (code) code->as<void (*)()>()();
            }
        });
    for (std::thread& thread : threads) thread.join();
    get(cache, "last");
    EXPECT_LE(cache.bytes(), 4 * kPage);
    EXPECT_EQ(cache.bytes(), cache.size() * kPage);
}

}  // namespace
}  // namespace quire::test
