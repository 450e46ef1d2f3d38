// Wrong calls that no table of arguments covers: handles, contexts, slices.
#include <string>

#include "tests/api_environment.h"
#include "tests/errors_table.h"

namespace quire::test {
namespace {

void expect_text(quire_status status, const std::string& message) { expect_error(status, message.c_str()); }

// ---- handles ----

TEST(ErrorsHandles, PlanOfAnotherOperator) {
    AttentionCall attention;
    AppendCall append;
    PmxCall pmx;
    quire_plan *plan_a = nullptr, *plan_b = nullptr;
    ASSERT_EQ(attention.plan(inline_context(), &plan_a), QUIRE_OK);
    ASSERT_EQ(append.plan(inline_context(), &plan_b), QUIRE_OK);
    quire_run* run = nullptr;
    for (Call* call : {static_cast<Call*>(&attention), static_cast<Call*>(&append), static_cast<Call*>(&pmx)})
        call->buffers.lock();
    expect_error(attention.run(plan_b), "plan is one of quire_append: must be one of quire_attention");
    expect_error(attention.prepare(plan_b, &run),
                 "plan is one of quire_append: must be one of quire_attention");
    expect_error(append.run(plan_a), "plan is one of quire_attention: must be one of quire_append");
    expect_error(append.prepare(plan_a, &run), "plan is one of quire_attention: must be one of quire_append");
    expect_error(pmx.run(plan_a),
                 "plan is one of quire_attention: must be one of "
                 "quire_pmx_dynamic_multi_head_cache_attention");
    EXPECT_EQ(run, nullptr);
    quire_plan_destroy(plan_a);
    quire_plan_destroy(plan_b);
}

TEST(ErrorsHandles, Null) {
    AttentionCall attention;
    AppendCall append;
    PmxCall pmx;
    quire_plan* plan = nullptr;
    quire_run* run = nullptr;
    ASSERT_EQ(attention.plan(inline_context(), &plan), QUIRE_OK);
    attention.buffers.lock();
    expect_error(attention.run(nullptr), "plan is NULL: must be a plan of quire_attention");
    expect_error(attention.prepare(nullptr, &run), "plan is NULL: must be a plan of quire_attention");
    expect_error(append.run(nullptr), "plan is NULL: must be a plan of quire_append");
    expect_error(pmx.run(nullptr),
                 "plan is NULL: must be a plan of quire_pmx_dynamic_multi_head_cache_attention");
    expect_error(quire_attention(plan, nullptr), "args is NULL: must point at a struct");
    expect_error(quire_prepare_attention(plan, &attention.args, nullptr),
                 "run is NULL: must point at a quire_run*");
    expect_error(quire_attention_plan(inline_context(), &attention.desc, nullptr),
                 "plan is NULL: must point at a quire_plan*");
    expect_error(quire_attention_plan(inline_context(), nullptr, &plan),
                 "desc is NULL: must point at a struct");
    expect_error(quire_context_create(nullptr, nullptr), "context is NULL: must point at a quire_context*");
    expect_error(quire_run_slice(nullptr, 0, 1, nullptr, nullptr), "run is NULL: must be a prepared run");
    quire_plan_destroy(plan);
}

TEST(ErrorsHandles, NullIsNothingToDestroy) {
    quire_plan_destroy(nullptr);
    quire_context_destroy(nullptr);
    quire_run_release(nullptr);
    EXPECT_STREQ(quire_plan_explain(nullptr), "");
}

// ---- contexts ----

struct WrongContext {
    const char* name;
    void (*change)(quire_context_options& options);
    const char* message;
};

constexpr char kNames[] =
    "portable, avx2, avx2_vnni, avx512, avx512_vnni, avx512_vnni_vbmi, avx512_vnni_bf16, "
    "avx512_vnni_bf16_amx";

TEST(ErrorsContext, Options) {
    const std::vector<WrongContext> rows = {
        {"no struct size", [](quire_context_options& o) { o.struct_size = 0; },
         "options.struct_size is 0: must be sizeof the struct, 56"},
        {"unknown target", [](quire_context_options& o) { o.target = "sse9"; },
         "target is \"sse9\": must be one of portable, avx2, avx2_vnni, avx512, avx512_vnni, "
         "avx512_vnni_vbmi, avx512_vnni_bf16, avx512_vnni_bf16_amx"},
        {"target in capitals", [](quire_context_options& o) { o.target = "AVX2"; },
         "target is \"AVX2\": must be one of portable, avx2, avx2_vnni, avx512, avx512_vnni, "
         "avx512_vnni_vbmi, avx512_vnni_bf16, avx512_vnni_bf16_amx"},
        {"threads -1", [](quire_context_options& o) { o.num_threads = -1; },
         "num_threads is -1: must be 0 to 1024"},
        {"threads 1025", [](quire_context_options& o) { o.num_threads = 1025; },
         "num_threads is 1025: must be 0 to 1024"},
        {"code memory -1", [](quire_context_options& o) { o.code_memory_limit = -1; },
         "code_memory_limit is -1: must be >= 0"},
    };
    for (const WrongContext& row : rows) {
        SCOPED_TRACE(row.name);
        quire_context_options options = {};
        options.struct_size = sizeof options;
        row.change(options);
        quire_context* context = nullptr;
        expect_error(quire_context_create(&options, &context), row.message);
        EXPECT_EQ(context, nullptr);
    }
}

TEST(ErrorsContext, Environment) {
    quire_context* context = nullptr;
    for (const char* value : {"avx3", "all", " avx2", "portable,avx2"}) {
        Variable variable("QUIRE_TARGET", value);
        expect_text(quire_context_create(nullptr, &context),
                    "QUIRE_TARGET is \"" + std::string(value) + "\": must be one of " + kNames);
    }
    for (const char* value : {"0", "-1", "1025", "two", "2x", "99999999999999999999"}) {
        Variable variable("QUIRE_NUM_THREADS", value);
        expect_text(quire_context_create(nullptr, &context),
                    "QUIRE_NUM_THREADS is \"" + std::string(value) + "\": must be 1 to 1024");
    }
    EXPECT_EQ(context, nullptr);
    // What a program asks for is not spoilt by a variable that it overrides.
    Variable target("QUIRE_TARGET", "avx3"), threads("QUIRE_NUM_THREADS", "many");
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.target = "portable";
    options.num_threads = 1;
    EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    quire_context_destroy(context);
}

// ---- slices ----

TEST(ErrorsSlices, IndexCountBarrier) {
    AttentionCall call, expected;
    const std::vector<uint8_t> bytes = expected.result(inline_context());
    quire_plan* plan = nullptr;
    quire_run* run = nullptr;
    ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK);
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK);
    const auto barrier = [](void*) { ADD_FAILURE() << "a wrong slice waits for others"; };
    call.buffers.lock();
    expect_error(quire_run_slice(run, 0, 0, barrier, nullptr), "count is 0: must be 1 to 1024");
    expect_error(quire_run_slice(run, 0, -1, barrier, nullptr), "count is -1: must be 1 to 1024");
    expect_error(quire_run_slice(run, 0, 1025, barrier, nullptr), "count is 1025: must be 1 to 1024");
    expect_error(quire_run_slice(run, 2, 2, barrier, nullptr), "index is 2: must be 0 to 1");
    expect_error(quire_run_slice(run, -1, 2, barrier, nullptr), "index is -1: must be 0 to 1");
    expect_error(quire_run_slice(run, 1, 2, nullptr, nullptr), "barrier is NULL: must be given for 2 slices");
    call.buffers.unlock();
    EXPECT_EQ(quire_run_slice(run, 0, 1, nullptr, nullptr), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(call.buffers.written(), bytes);
    quire_run_release(run);
    quire_plan_destroy(plan);
}

}  // namespace
}  // namespace quire::test
