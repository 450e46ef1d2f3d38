// Targets: the table, what the machine has, and the cap.
#include "src/target.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/api_call.h"
#include "tests/api_environment.h"

namespace quire::test {
namespace {

std::vector<const Target*> table() {
    int count = 0;
    const Target* first = target_table(&count);
    std::vector<const Target*> rows;
    for (int i = 0; i < count; ++i) rows.push_back(first + i);
    return rows;
}

// Name of the target of a new context, "" where there is none.
std::string target_with(const char* cap) {
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.num_threads = 1;
    options.target = cap;
    quire_context* context = nullptr;
    if (quire_context_create(&options, &context) != QUIRE_OK) return "";
    const std::string name = quire_target_name(context);
    quire_context_destroy(context);
    return name;
}

TEST(Target, TableIsOrdered) {
    const std::vector<const Target*> rows = table();
    ASSERT_FALSE(rows.empty());
    EXPECT_STREQ(rows[0]->name, "portable");
    EXPECT_FALSE(rows[0]->jit());
    for (size_t i = 1; i < rows.size(); ++i) {
        const Target &lower = *rows[i - 1], &row = *rows[i];
        EXPECT_TRUE(row.jit());
        EXPECT_GE(row.vector_bits, lower.vector_bits);
        EXPECT_EQ(find_target(row.name), &row);
        EXPECT_NE(std::string(row.why), "");
    }
    EXPECT_EQ(find_target("avx9"), nullptr);
    EXPECT_EQ(find_target(""), nullptr);
}

TEST(Target, EveryCapGivesSomethingNotAboveIt) {
    for (const Target* cap : table()) {
        const Target* got = find_target(target_with(cap->name));
        ASSERT_NE(got, nullptr) << cap->name;
        EXPECT_LE(got, cap);
        EXPECT_LE(got, machine_target());
        if (cap <= machine_target() && got != cap) {
            // Below what the machine has only where the machine lacks just that: a tier of the other width.
            EXPECT_NE(cap->vector_bits, machine_target()->vector_bits) << cap->name << " gives " << got->name;
        }
    }
}

TEST(Target, EveryCapWorks) {
    for (const Target* cap : table()) {
        AttentionCall call;
        quire_context_options options = {};
        options.struct_size = sizeof options;
        options.num_threads = 1;
        options.target = cap->name;
        quire_context* context = nullptr;
        ASSERT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
        call.result(context);
        quire_context_destroy(context);
    }
}

TEST(Target, VariableCaps) {
    for (const Target* cap : table()) {
        Variable variable("QUIRE_TARGET", cap->name);
        const Target* got = find_target(target_with(nullptr));
        ASSERT_NE(got, nullptr) << cap->name;
        EXPECT_LE(got, cap);
        EXPECT_EQ(got->name, target_with(cap->name));
    }
}

TEST(Target, EmptyOrNoVariableIsNoCap) {
    {
        Variable empty("QUIRE_TARGET", "");
        EXPECT_EQ(target_with(nullptr), quickest_target()->name);
        EXPECT_EQ(target_with(""), quickest_target()->name);
    }
    Variable none("QUIRE_TARGET", nullptr);
    EXPECT_EQ(target_with(nullptr), quickest_target()->name);
}

// Which differs from the best one where products of bfloat16 are slow.
TEST(Target, QuickestIsOfTheMachine) {
    const Target *best = machine_target(), *quickest = quickest_target();
    EXPECT_EQ(quickest->vector_bits, best->vector_bits);
    EXPECT_EQ(quickest->vnni, best->vnni);
    EXPECT_EQ(quickest->vbmi, best->vbmi);
    __builtin_cpu_init();
    EXPECT_EQ(quickest->amx, best->amx);
    EXPECT_EQ(quickest->bf16, best->bf16 && (best->amx || !__builtin_cpu_is("intel")));
    EXPECT_EQ(target_with(best->name), best->name) << "a slower one must be there for who asks for it";
}

TEST(Target, OptionWinsOverVariable) {
    Variable variable("QUIRE_TARGET", "portable");
    EXPECT_EQ(target_with(machine_target()->name), machine_target()->name);
    Variable nonsense("QUIRE_TARGET", "nonsense");
    EXPECT_EQ(target_with("portable"), "portable");
    EXPECT_EQ(target_with(nullptr), "");
}

TEST(Target, ContextKeepsItsTarget) {
    quire_context* context = nullptr;
    {
        Variable variable("QUIRE_TARGET", "portable");
        ASSERT_EQ(quire_context_create(nullptr, &context), QUIRE_OK);
    }
    EXPECT_STREQ(quire_target_name(context), "portable");
    quire_context_destroy(context);
}

// What the processor says of itself, read another way.
TEST(Target, AgreesWithTheCompilersRuntime) {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    EXPECT_EQ(machine_target()->vector_bits, avx512 ? 512 : avx2 ? 256 : 0);
    if (avx512) {
        EXPECT_EQ(machine_target()->vnni, __builtin_cpu_supports("avx512vnni") != 0);
    }
}

}  // namespace
}  // namespace quire::test
