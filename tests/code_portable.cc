// Where the system lets no generated code run: plans run on `portable`, and say so once.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/api_call.h"
#include "tests/code_refuse.h"

namespace quire::test {
namespace {

constexpr char kReasons[] =
    "code memory: mprotect to read+execute: Permission denied; code memory: memfd_create: Permission denied";

struct Logged {
    quire_context* context = nullptr;
    std::vector<std::string> lines;

    explicit Logged(const char* target = nullptr) {
        quire_context_options options = {};
        options.struct_size = sizeof options;
        options.num_threads = 1;
        options.target = target;
        options.log = [](void* user, const char* line) { static_cast<Logged*>(user)->lines.push_back(line); };
        options.log_user = this;
        EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    }
    ~Logged() { quire_context_destroy(context); }
};

class Portable : public testing::Test {
protected:
    void SetUp() override {
        if (std::string(quire_target_name(inline_context())) == "portable")
            GTEST_SKIP() << "no code is generated here";
    }
};

template <typename CallType>
void check_fallback() {
    Logged hardened, plain("portable");
    CallType call, expected;
    const std::vector<uint8_t> bytes = expected.result(plain.context);
    quire_plan* plan = nullptr;
    {
        Refuse all(2);
        ASSERT_EQ(call.plan(hardened.context, &plan), QUIRE_OK) << quire_last_error();
    }
    const std::string target = quire_target_name(hardened.context), text = quire_plan_explain(plan);
    EXPECT_NE(text.find(": " + target + " declined: " + kReasons + "\n"), std::string::npos) << text;
    EXPECT_NE(text.find(": portable\n"), std::string::npos) << text;
    EXPECT_EQ(call.run(plan), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(call.buffers.written(), bytes);
    EXPECT_EQ(hardened.lines,
              std::vector<std::string>{"quire: runs on portable, not on " + target + ": " + kReasons});
    EXPECT_EQ(plain.lines, std::vector<std::string>{});
    quire_plan_destroy(plan);
}

TEST_F(Portable, Attention) { check_fallback<AttentionCall>(); }
TEST_F(Portable, Append) { check_fallback<AppendCall>(); }
TEST_F(Portable, Pmx) { check_fallback<PmxCall>(); }

TEST_F(Portable, SaidOnce) {
    Logged hardened;
    Refuse all(2);
    for (int i = 0; i < 3; ++i) {
        AttentionCall().result(hardened.context);
        AppendCall().result(hardened.context);
        PmxCall().result(hardened.context);
    }
    EXPECT_EQ(hardened.lines.size(), 1u);
    for (const std::string& line : hardened.lines) EXPECT_EQ(line.find('\n'), std::string::npos);
}

// Nothing is said where a way that works is left, and nothing stays refused.
TEST_F(Portable, MemfdIsNoFallback) {
    Logged hardened;
    AttentionCall call, usual;
    const std::vector<uint8_t> expected = usual.result(inline_context());
    {
        Refuse one(1);
        EXPECT_EQ(call.result(hardened.context), expected);
    }
    EXPECT_EQ(hardened.lines, std::vector<std::string>{});
}

TEST_F(Portable, GeneratesAgainWhereItMay) {
    Logged context;
    AttentionCall refused, again, usual;
    {
        Refuse all(2);
        refused.result(context.context);
    }
    quire_plan* plan = nullptr;
    ASSERT_EQ(again.plan(context.context, &plan), QUIRE_OK);
    EXPECT_EQ(std::string(quire_plan_explain(plan)).find(kReasons), std::string::npos);
    EXPECT_EQ(again.run(plan), QUIRE_OK);
    EXPECT_EQ(again.buffers.written(), usual.result(inline_context()));
    quire_plan_destroy(plan);
}

}  // namespace
}  // namespace quire::test
