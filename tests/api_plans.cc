// Contexts and plans: who outlives whom, what a plan says of itself, messages of threads.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>

#include "src/target.h"
#include "tests/api_call.h"

namespace quire::test {
namespace {

quire_context* context_with(const char* target, int threads = 1) {
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.target = target;
    options.num_threads = threads;
    quire_context* context = nullptr;
    EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    return context;
}

TEST(Plan, OutlivesItsContext) {
    for (int threads : {1, 2}) {
        PmxCall call, usual;
        quire_context* context = context_with(nullptr, threads);
        quire_plan* plan = nullptr;
        ASSERT_EQ(call.plan(context, &plan), QUIRE_OK) << quire_last_error();
        quire_context_destroy(context);
        EXPECT_EQ(call.run(plan), QUIRE_OK) << quire_last_error();
        EXPECT_EQ(call.buffers.written(), usual.result(inline_context()));
        EXPECT_NE(std::string(quire_plan_explain(plan)), "");
        quire_plan_destroy(plan);
    }
}

TEST(Plan, PreparedRunOutlivesTheContext) {
    AttentionCall call, usual;
    quire_context* context = context_with(nullptr);
    quire_plan* plan = nullptr;
    quire_run* run = nullptr;
    ASSERT_EQ(call.plan(context, &plan), QUIRE_OK) << quire_last_error();
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK) << quire_last_error();
    quire_context_destroy(context);
    EXPECT_EQ(quire_run_slice(run, 0, 1, nullptr, nullptr), QUIRE_OK) << quire_last_error();
    quire_run_release(run);
    quire_plan_destroy(plan);
    EXPECT_EQ(call.buffers.written(), usual.result(inline_context()));
}

TEST(Plan, RunReleasedWithoutASlice) {
    AttentionCall call, usual;
    quire_plan* plan = nullptr;
    quire_run* run = nullptr;
    ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK) << quire_last_error();
    const std::vector<uint8_t> before = call.buffers.bytes();
    quire_run_release(run);
    EXPECT_EQ(call.buffers.bytes(), before);
    EXPECT_EQ(call.run(plan), QUIRE_OK);
    EXPECT_EQ(call.buffers.written(), usual.result(inline_context()));
    quire_plan_destroy(plan);
}

TEST(Plan, TwoContexts) {
    quire_context *plain = context_with("portable"), *best = context_with(nullptr);
    EXPECT_STREQ(quire_target_name(plain), "portable");
    EXPECT_STREQ(quire_target_name(best), quire_target_name(inline_context()));
    AttentionCall call;
    quire_plan *plan_a = nullptr, *plan_b = nullptr;
    ASSERT_EQ(call.plan(plain, &plan_a), QUIRE_OK);
    ASSERT_EQ(call.plan(best, &plan_b), QUIRE_OK);
    quire_context_destroy(plain);
    EXPECT_EQ(call.run(plan_b), QUIRE_OK);
    EXPECT_EQ(call.run(plan_a), QUIRE_OK);
    quire_plan_destroy(plan_a);
    EXPECT_EQ(call.run(plan_b), QUIRE_OK);
    quire_plan_destroy(plan_b);
    quire_context_destroy(best);
}

TEST(Plan, DefaultContext) {
    EXPECT_STREQ(quire_target_name(nullptr), quire_target_name(inline_context()));
    EXPECT_GE(quire_num_threads(nullptr), 1);
    EXPECT_EQ(quire_num_threads(inline_context()), 1);
    AttentionCall call, usual;
    EXPECT_EQ(call.result(nullptr), usual.result(inline_context()));
    EXPECT_EQ(quire_merge_states(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
              QUIRE_INVALID_ARGUMENT);
}

TEST(Plan, FailureLeavesTheResultAlone) {
    AttentionCall call;
    quire_plan *plan = nullptr, *kept = nullptr;
    ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK);
    kept = plan;
    call.desc.num_heads = -1;
    EXPECT_EQ(call.plan(inline_context(), &plan), QUIRE_INVALID_ARGUMENT);
    EXPECT_EQ(plan, kept);
    quire_plan_destroy(plan);
}

// ---- explain ----

// Value of the first line "key: value", "" where there is none.
std::string value_of(const std::string& text, const std::string& key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.rfind(key + ": ", 0) == 0) return line.substr(key.size() + 2);
    return "";
}

void check_lines(const std::string& text) {
    ASSERT_NE(text, "");
    EXPECT_EQ(text.back(), '\n');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_NE(line.find(": "), std::string::npos) << line;
}

std::string explain(const Call& call, quire_context* context) {
    quire_plan* plan = nullptr;
    EXPECT_EQ(call.plan(context, &plan), QUIRE_OK) << quire_last_error();
    const std::string text = quire_plan_explain(plan);
    EXPECT_EQ(quire_plan_explain(plan), quire_plan_explain(plan));  // valid while the plan lives
    quire_plan_destroy(plan);
    check_lines(text);
    return text;
}

TEST(Explain, NamesOperatorTargetAndKernels) {
    const std::string target = quire_target_name(inline_context());
    const std::string attention = explain(AttentionCall(), inline_context());
    EXPECT_EQ(value_of(attention, "op"), "quire_attention");
    EXPECT_NE(attention.find("attention: " + target + "\n"), std::string::npos) << attention;
    const std::string append = explain(AppendCall(), inline_context());
    EXPECT_EQ(value_of(append, "op"), "quire_append");
    EXPECT_NE(append.find("append: " + target + "\n"), std::string::npos) << append;
    const std::string pmx = explain(PmxCall(), inline_context());
    EXPECT_EQ(value_of(pmx, "op"), "quire_pmx_dynamic_multi_head_cache_attention");
    EXPECT_NE(pmx.find("append: " + target + "\n"), std::string::npos) << pmx;
    EXPECT_NE(pmx.find("attention: " + target + "\n"), std::string::npos) << pmx;
    if (target == "portable") return;
    EXPECT_NE(value_of(attention, "attention kernels").find("decode_qk_d16_"), std::string::npos)
        << attention;
    EXPECT_NE(value_of(attention, "attention kernels").find("int8_gr8_f32_" + target), std::string::npos)
        << attention;
    EXPECT_NE(value_of(attention, "attention tiles"), "") << attention;
    EXPECT_NE(value_of(append, "append kernels").find("append_d16_f32_int8_gr8_f32_" + target),
              std::string::npos)
        << append;
}

TEST(Explain, SaysWhyEachFasterTargetDeclined) {
    quire_context* context = context_with("portable");
    const std::string text = explain(AttentionCall(), context);
    quire_context_destroy(context);
    int count = 0;
    const Target* table = target_table(&count);
    for (int i = 1; i < count; ++i)
        EXPECT_NE(text.find("attention: " + std::string(table[i].name) +
                            " declined: above the target in use, portable\n"),
                  std::string::npos)
            << text;
    EXPECT_NE(text.find("attention: portable\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("portable declined"), std::string::npos) << text;
}

// What the explanation says of a thread's scratch, in KiB; -1: nothing.
int kib_of_tiles(const quire_format& format, int head_dim, quire_precision precision) {
    quire_attention_desc desc;
    quire_attention_desc_init(&desc);
    desc.num_heads = desc.num_kv_heads = 2;
    desc.head_dim = head_dim;
    desc.key_format = desc.value_format = format;
    desc.precision = precision;
    quire_plan* plan = nullptr;
    if (quire_attention_plan(inline_context(), &desc, &plan) != QUIRE_OK) return -1;
    const std::string tiles = value_of(quire_plan_explain(plan), "attention tiles");
    quire_plan_destroy(plan);
    const size_t last = tiles.rfind(", ");
    return last == std::string::npos ? -1 : std::stoi(tiles.substr(last + 2));
}

// Whatever the lengths are: less than 2 MiB, which stay in the caches.
TEST(Explain, QuickThreadMemory) {
    if (value_of(explain(AttentionCall(), inline_context()), "attention tiles").empty()) GTEST_SKIP();
    const quire_format formats[] = {
        {QUIRE_INT8, 8, QUIRE_F16}, {QUIRE_INT4, 8, QUIRE_F16}, {QUIRE_BF16, 0, QUIRE_NONE}};
    for (const int head_dim : {16, 64, 80, 96, 128, 256, 576, 1024})
        for (const quire_format& format : formats)
            for (const quire_precision precision :
                 {QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM}) {
                const int kib = kib_of_tiles(format, head_dim, precision);
                EXPECT_GT(kib, 64) << head_dim << ' ' << format.type << ' ' << precision;
                EXPECT_LT(kib, 2048) << head_dim << ' ' << format.type << ' ' << precision;
            }
}

TEST(Explain, SaysThatALowerPrecisionRunsAsHighest) {
    AttentionCall call;
    call.desc.precision = QUIRE_PRECISION_MEDIUM;
    EXPECT_NE(value_of(explain(call, inline_context()), "precision"), "");
    EXPECT_EQ(value_of(explain(AttentionCall(), inline_context()), "precision"), "");
}

// ---- last error ----

TEST(LastError, IsOfTheThread) {
    quire_plan* plan = nullptr;
    quire_attention(nullptr, nullptr);
    const std::string mine = quire_last_error();
    EXPECT_NE(mine, "");
    std::thread([&] {
        EXPECT_STREQ(quire_last_error(), "");
        quire_append_plan(nullptr, nullptr, &plan);
        EXPECT_STREQ(quire_last_error(), "desc is NULL: must point at a struct");
    }).join();
    EXPECT_EQ(quire_last_error(), mine);
}

TEST(LastError, StaysUntilTheNextFailure) {
    quire_attention(nullptr, nullptr);
    const std::string message = quire_last_error();
    AttentionCall().result(inline_context());
    EXPECT_EQ(quire_last_error(), message);
    quire_append(nullptr, nullptr);
    EXPECT_NE(quire_last_error(), message);
}

TEST(LastError, LongTextIsCutOff) {
    const std::string name(2000, 'x');
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.target = name.c_str();
    quire_context* context = nullptr;
    EXPECT_EQ(quire_context_create(&options, &context), QUIRE_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(quire_last_error()).find("target is \"xxx"), 0u);
    EXPECT_LT(std::string(quire_last_error()).size(), 1024u);
}

}  // namespace
}  // namespace quire::test
