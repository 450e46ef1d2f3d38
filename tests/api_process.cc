// What the library does to the process around it: prints nothing, survives fork and dlopen.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/api_call.h"
#include "tests/api_environment.h"
#include "tests/code_maps.h"

namespace quire::test {
namespace {

quire_context* context_with_threads(int threads, quire_log_fn log = nullptr, void* user = nullptr) {
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.num_threads = threads;
    options.log = log;
    options.log_user = user;
    quire_context* context = nullptr;
    EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    return context;
}

// ---- printing ----

// What `use` writes to stdout and stderr.
template <typename Use>
std::string printed(const Use& use) {
    std::fflush(nullptr);
    std::FILE* file = std::tmpfile();
    const int kept_out = dup(1), kept_error = dup(2);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    use();
    std::fflush(nullptr);
    dup2(kept_out, 1);
    dup2(kept_error, 2);
    close(kept_out);
    close(kept_error);
    std::string text(size_t(std::ftell(file)), ' ');
    std::rewind(file);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
    return text;
}

TEST(Process, PrintsNothing) {
    EXPECT_EQ(printed([] { std::printf("1"), std::fflush(stdout), std::fprintf(stderr, "2"); }), "12");
    const std::string text = printed([] {
        for (int threads : {0, 1, 2, 1000}) {
            quire_context* context = context_with_threads(threads);
            AttentionCall().result(context);
            AppendCall().result(context);
            PmxCall().result(context);
            MergeCall().result(context);
            quire_context_destroy(context);
        }
        AttentionCall().result(nullptr);
        quire_attention(nullptr, nullptr);  // errors are not printed either
        quire_context_options options = {};
        quire_context* none = nullptr;
        quire_context_create(&options, &none);
    });
    EXPECT_EQ(text, "");
}

// ---- fork ----

// For processes that were forked: says nothing.
quire_context* quiet_context(int threads) {
    return context_with_threads(threads, [](void*, const char*) {});
}

quire_context* logging_context(int threads, std::vector<std::string>* lines) {
    return context_with_threads(
        threads,
        [](void* user, const char* line) { static_cast<std::vector<std::string>*>(user)->push_back(line); },
        lines);
}

enum class End { quick, usual };  // _exit, or exit with its destructors

// Forks; the child says by `use` whether all went well. It has a minute.
template <typename Use>
void expect_child(const Use& use, End end = End::quick) {
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(60);
        const int code = use() ? 0 : 1;
        if (end == End::quick) _exit(code);
        std::exit(code);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? ": hangs" : "");
    if (WIFEXITED(status)) {
        EXPECT_EQ(WEXITSTATUS(status), 0);
    }
}

bool gives(const quire_plan* plan, const std::vector<uint8_t>& expected) {
    PmxCall call;
    return call.run(plan) == QUIRE_OK && call.buffers.written() == expected;
}

bool context_gives(quire_context* context, const std::vector<uint8_t>& expected) {
    PmxCall call;
    quire_plan* plan = nullptr;
    const bool good = call.plan(context, &plan) == QUIRE_OK && gives(plan, expected);
    quire_plan_destroy(plan);
    return good;
}

class Fork : public testing::TestWithParam<int> {  // threads
protected:
    void SetUp() override {
#ifdef __SANITIZE_THREAD__
        GTEST_SKIP() << "the thread sanitizer does not follow a fork of many threads";
#endif
        context_ = quiet_context(GetParam());
        PmxCall call;
        expected_ = PmxCall().result(inline_context());
        ASSERT_EQ(call.plan(context_, &plan_), QUIRE_OK);
        EXPECT_TRUE(gives(plan_, expected_));  // the parent's threads exist now
    }
    void TearDown() override {
        if (plan_ != nullptr) {
            EXPECT_TRUE(gives(plan_, expected_));  // the parent goes on
        }
        quire_plan_destroy(plan_);
        quire_context_destroy(context_);
    }
    quire_context* context_ = nullptr;
    quire_plan* plan_ = nullptr;
    std::vector<uint8_t> expected_;
};

TEST_P(Fork, ChildUsesTheParentsPlan) {
    for (int i = 0; i < 10; ++i)
        expect_child([&] { return gives(plan_, expected_) && context_gives(context_, expected_); });
}

TEST_P(Fork, ChildMakesItsOwn) {
    expect_child([&] {
        quire_context* own = quiet_context(GetParam());
        const bool good = context_gives(own, expected_);
        quire_context_destroy(own);
        return good;
    });
}

TEST_P(Fork, ChildEndsAsUsual) {
    expect_child(
        [&] {
            const bool good = gives(plan_, expected_);
            quire_plan_destroy(plan_);
            quire_context_destroy(context_);
            return good;
        },
        End::usual);
    expect_child([] { return true; }, End::usual);
}

TEST_P(Fork, ChildOfAChild) {
    expect_child([&] {
        const pid_t child = fork();
        if (child == 0) _exit(gives(plan_, expected_) ? 0 : 1);
        int status = 0;
        return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
               gives(plan_, expected_);
    });
}

TEST_P(Fork, ChildGeneratesCode) {
    expect_child([&] {
        AttentionCall call;
        call.desc.logits_soft_cap = 3;  // kernels that the parent does not have
        quire_plan* plan = nullptr;
        const bool good = call.plan(context_, &plan) == QUIRE_OK && call.run(plan) == QUIRE_OK;
        quire_plan_destroy(plan);
        return good;
    });
}

INSTANTIATE_TEST_SUITE_P(, Fork, testing::Values(1, 2),
                         [](const auto& threads) { return threads.param == 1 ? "Inline" : "Threads"; });

int threads_of_this_process() {
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    return int(std::distance(begin(tasks), end(tasks)));
}

// Fork ends oneTBB's threads, and both processes make new ones.
TEST(ForkThreads, BothProcessesHaveTheirOwn) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer does not follow a fork of many threads";
#endif
    std::vector<std::string> lines;
    quire_context* context = logging_context(2, &lines);
    const std::vector<uint8_t> expected = PmxCall().result(context);
    const int threads = threads_of_this_process();
    EXPECT_EQ(threads, sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1);
    expect_child([&] {
        const int before = threads_of_this_process();
        return context_gives(context, expected) && before == 1 && threads_of_this_process() == threads &&
               lines.empty();
    });
    EXPECT_EQ(threads_of_this_process(), 1);
    EXPECT_TRUE(context_gives(context, expected));
    EXPECT_EQ(threads_of_this_process(), threads);
    quire_context_destroy(context);
}

// Another thread holds on to oneTBB, which keeps its threads: a child says once that it runs inline.
TEST(ForkThreads, ChildRunsInlineWhereOneTbbIsInUse) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer does not follow a fork of many threads";
#endif
    std::vector<std::string> lines;
    quire_context* context = logging_context(2, &lines);
    const std::vector<uint8_t> expected = PmxCall().result(context);
    std::promise<void> used, forked;
    std::thread other([&] {
        EXPECT_TRUE(context_gives(context, expected));
        used.set_value();
        forked.get_future().wait();
    });
    used.get_future().wait();
    EXPECT_TRUE(lines.empty());
    const bool threads = sysconf(_SC_NPROCESSORS_ONLN) > 1;  // else there is nothing to say
    const auto use = [&] {
        const std::string said = "quire: runs inline: this process was forked while oneTBB was in use";
        bool good = context_gives(context, expected) && context_gives(context, expected);
        good = good && (!threads || lines == std::vector<std::string>{said});
        quire_context_destroy(context);
        return good;
    };
    expect_child(use);
    expect_child(use, End::usual);
    EXPECT_TRUE(context_gives(context, expected));  // the parent goes on
    forked.set_value();
    other.join();
    quire_context_destroy(context);
}

// ---- a second copy of the library, loaded beside the one in this program ----

#define LOAD(name) name##_ = reinterpret_cast<decltype(name)*>(dlsym(handle_, #name))

class Copy {
public:
    Copy() : handle_(dlopen(QUIRE_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr) return;
        LOAD(quire_target_name);
        LOAD(quire_last_error);
        LOAD(quire_attention_plan);
        LOAD(quire_attention);
        LOAD(quire_plan_destroy);
    }
    ~Copy() { EXPECT_EQ(handle_ == nullptr ? 0 : dlclose(handle_), 0); }
    bool loaded() const { return handle_ != nullptr; }

    std::vector<uint8_t> result(AttentionCall& call) const {
        quire_plan* plan = nullptr;
        EXPECT_EQ(quire_attention_plan_(nullptr, &call.desc, &plan), QUIRE_OK) << quire_last_error_();
        EXPECT_EQ(quire_attention_(plan, &call.args), QUIRE_OK) << quire_last_error_();
        quire_plan_destroy_(plan);
        return call.buffers.written();
    }

    void* const handle_;
    decltype(quire_target_name)* quire_target_name_ = nullptr;
    decltype(quire_last_error)* quire_last_error_ = nullptr;
    decltype(quire_attention_plan)* quire_attention_plan_ = nullptr;
    decltype(quire_attention)* quire_attention_ = nullptr;
    decltype(quire_plan_destroy)* quire_plan_destroy_ = nullptr;
};

[[maybe_unused]] bool is_loaded() {  // not under sanitizers, which keep every library
    for (const Mapping& m : mappings())
        if (m.line.find("libquire.so") != std::string::npos) return true;
    return false;
}

// Its default context is new each time, and is made from the environment of that time.
TEST(SharedLibrary, LoadedAndUnloadedTwice) {
    AttentionCall usual;
    const std::vector<uint8_t> expected = usual.result(inline_context());
    Variable threads("QUIRE_NUM_THREADS", "1");
    for (int time = 0; time < 2; ++time) {
        {
            Copy copy;
            ASSERT_TRUE(copy.loaded()) << dlerror();
            {
                Variable target("QUIRE_TARGET", "nonsense");
                for (int i = 0; i < 2; ++i) {  // a failure is not kept
                    EXPECT_EQ(copy.quire_target_name_(nullptr), nullptr);
                    EXPECT_EQ(std::string(copy.quire_last_error_()).find("QUIRE_TARGET is \"nonsense\""), 0u);
                }
            }
            EXPECT_STREQ(copy.quire_target_name_(nullptr), quire_target_name(inline_context()));
            Variable late("QUIRE_TARGET", "nonsense");  // comes too late
            AttentionCall call;
            EXPECT_EQ(copy.result(call), expected);
        }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        EXPECT_FALSE(is_loaded());
#endif
    }
    AttentionCall again;
    EXPECT_EQ(again.result(inline_context()), expected);
}

// Once oneTBB has threads, the library stays for their sake.
TEST(SharedLibrary, StaysForTheThreads) {
    AttentionCall usual;
    const std::vector<uint8_t> expected = usual.result(inline_context());
    Variable threads("QUIRE_NUM_THREADS", "2");
    for (int time = 0; time < 2; ++time) {
        Copy copy;
        ASSERT_TRUE(copy.loaded()) << dlerror();
        AttentionCall call;
        EXPECT_EQ(copy.result(call), expected);
    }
    AttentionCall again;
    EXPECT_EQ(again.result(nullptr), expected);
}

}  // namespace
}  // namespace quire::test
