// QUIRE_VERBOSE: a line of CSV a call, whose format docs/profiling.md promises; and quire_run_predict, which
// says the same bytes and flops.
#include "src/cost.h"
#include "tests/api_allocations.h"
#include "tests/directml_call.h"
#include "tests/mindspore_call.h"
#include "tests/pmx_calls.h"
#include "tests/profile_context.h"

namespace quire::test {
namespace {

constexpr char kColumns[] =
    "quire_verbose,version,call,op,target,problem,kernels,bytes,flops,prepare_us,run_us";

// Quotes around a field are taken off; none in this library's texts has one within.
std::vector<std::string> fields(const std::string& line) {
    std::vector<std::string> found(1);
    bool quoted = false;
    for (char c : line) {
        if (c == '"') quoted = !quoted;
        if (c == ',' && !quoted)
            found.emplace_back();
        else if (c != '"')
            found.back() += c;
    }
    return found;
}

std::string only_call(const std::vector<std::string>& lines) {
    EXPECT_EQ(lines.size(), 2u);
    if (lines.size() != 2) return "";
    EXPECT_EQ(lines[0], kColumns);
    EXPECT_EQ(fields(lines[1]).size(), fields(kColumns).size()) << lines[1];
    return lines[1];
}

// Two sequences, S 3, T 6; H 4, Hk 2, D 16, Dv 8.
TEST(Verbose, NamesTheProblemAndCountsQuick) {
    const Variable variable("QUIRE_VERBOSE", "1");
    LoggedContext logged;
    AttentionCall call(AttentionCall::Keys::dense);
    call.args.attn_mask = nullptr;
    call.desc.is_causal = 0;
    call.result(logged.context);
    const std::vector<std::string> found = fields(only_call(logged.lines));
    ASSERT_EQ(found.size(), 11u);
    EXPECT_EQ(found[0], "quire_verbose");
    EXPECT_EQ(found[1], "1");
    EXPECT_EQ(found[2], "call");
    EXPECT_EQ(found[3], "quire_attention");
    EXPECT_EQ(found[4], quire_target_name(logged.context));
    EXPECT_EQ(found[5].find("attention B=2 S=3 T=6 H=4 Hk=2 D=16 Dv=8 key=f32 value=f32 type=f32"), 0u)
        << found[5];
    if (generates_code()) {
        EXPECT_NE(found[6].find("decode_qk_d16_r6_f32_"), std::string::npos) << found[6];
    } else {
        EXPECT_EQ(found[6], "");
    }
    // 12 keys of 2 heads of 24 floats; 6 tokens of 4 heads, in 16 and out 8 floats, and lse where asked for.
    const int lse = call.args.lse != nullptr ? 6 * 4 * 4 : 0;
    EXPECT_EQ(found[7], std::to_string(12 * 2 * 24 * 4 + 6 * 4 * 24 * 4 + lse));
    // Every query sees 6 keys: 2 flops for each of 24 elements and 4 heads.
    EXPECT_EQ(found[8], std::to_string(2 * 6 * 6 * 24 * 4));
    EXPECT_GT(std::atof(found[9].c_str()), 0);
    EXPECT_GT(std::atof(found[10].c_str()), 0);
}

// With scales, pages, and an append before: PMX, S {1, 3}, H 4, Hk 2, D 16, int8 in groups of 8.
TEST(Verbose, CountsCombinedOperators) {
    const Variable variable("QUIRE_VERBOSE", "1");
    LoggedContext logged;
    PmxCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK) << quire_last_error();
    ASSERT_EQ(call.run(plan), QUIRE_OK) << quire_last_error();
    const std::vector<std::string> found = fields(only_call(logged.lines));
    ASSERT_EQ(found.size(), 11u);
    EXPECT_EQ(found[3], "quire_pmx_dynamic_multi_head_cache_attention");
    EXPECT_EQ(found[5].find("append B=2 n=4 "), 0u) << found[5];
    EXPECT_NE(found[5].find(" attention B=2 S=1..3 T=5..6 "), std::string::npos) << found[5];
    if (generates_code()) {
        EXPECT_NE(found[6].find("append_d16_"), std::string::npos) << found[6];
    }
    quire_run* run = nullptr;
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK);
    quire_prediction prediction = {};
    prediction.struct_size = sizeof prediction;
    ASSERT_EQ(quire_run_predict(run, nullptr, &prediction), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(found[7], std::to_string(int64_t(prediction.bytes)));
    EXPECT_EQ(found[8], std::to_string(int64_t(prediction.flops)));
    quire_run_release(run);
    quire_plan_destroy(plan);
}

TEST(Verbose, EveryOperatorSaysItsCalls) {
    const Variable variable("QUIRE_VERBOSE", "1");
    for (int threads : {1, 2}) {
        LoggedContext logged(threads);
        AppendCall append;
        PmxCall pmx;
        AttentionCall pages, rows(AttentionCall::Keys::int4_rows);
        PmxDynamicAttentionCall pmx_attention;
        PmxDynamicKeyValueCacheCall pmx_read;
        PmxCacheAttentionCall pmx_static;
        PmxAttentionCall pmx_static_attention;
        PmxKeyValueCacheCall pmx_static_read;
        DirectmlCall directml;
        MindsporeCall mindspore;
        std::vector<Call*> calls = {&append,          &pmx,      &pages,      &rows,
                                    &pmx_attention,   &pmx_read, &pmx_static, &pmx_static_attention,
                                    &pmx_static_read, &directml, &mindspore};
        for (Call* call : calls) call->result(logged.context);
        ASSERT_EQ(logged.lines.size(), 1 + calls.size());
        EXPECT_EQ(fields(logged.lines[1])[3], "quire_append");
        for (size_t i = 1; i < logged.lines.size(); ++i)
            EXPECT_EQ(fields(logged.lines[i]).size(), 11u) << logged.lines[i];
        EXPECT_NE(logged.lines[6].find(" read B="), std::string::npos) << logged.lines[6];
        EXPECT_NE(logged.lines.back().find(" projected_rows="), std::string::npos) << logged.lines.back();
    }
}

TEST(Verbose, QuietContextsSayNothing) {
    const Variable variable("QUIRE_VERBOSE", "2");
    LoggedContext logged(1, nullptr, true);
    AttentionCall call;
    call.result(logged.context);
    EXPECT_TRUE(logged.lines.empty());
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.quiet = 2;
    quire_context* none = nullptr;
    EXPECT_EQ(quire_context_create(&options, &none), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "quiet is 2: must be 0 to 1");
}

TEST(Verbose, SlicesAreOneCall) {
    const Variable variable("QUIRE_VERBOSE", "1");
    LoggedContext logged;
    AttentionCall call;
    quire_plan* plan = nullptr;
    quire_run* run = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK);
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK);
    ASSERT_EQ(quire_run_slice(run, 0, 1, nullptr, nullptr), QUIRE_OK);
    EXPECT_EQ(logged.lines.size(), 1u);  // the columns: the call has not ended
    quire_run_release(run);
    EXPECT_GT(std::atof(fields(only_call(logged.lines))[10].c_str()), 0);
    // Released without having run.
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK);
    quire_run_release(run);
    EXPECT_EQ(fields(logged.lines.back()).back(), "0.0");
    quire_plan_destroy(plan);
}

TEST(Verbose, FailedCallsSayNothing) {
    const Variable variable("QUIRE_VERBOSE", "1");
    LoggedContext logged;
    AttentionCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK);
    call.args.query = nullptr;
    EXPECT_EQ(call.run(plan), QUIRE_INVALID_ARGUMENT);
    EXPECT_TRUE(logged.lines.empty());
    quire_plan_destroy(plan);
}

// ---- level 2 ----

TEST(Verbose, TwoSaysThePlanAndWhatDeclined) {
    const Variable variable("QUIRE_VERBOSE", "2");
    LoggedContext logged(1, "portable");
    AttentionCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK);
    std::string text;
    for (const std::string& line : logged.lines) {
        const std::vector<std::string> found = fields(line);
        ASSERT_EQ(found.size(), 5u) << line;
        EXPECT_EQ(found[2], "plan");
        EXPECT_EQ(found[3], "quire_attention");
        text += found[4] + "\n";
    }
    EXPECT_EQ(text, quire_plan_explain(plan));
    EXPECT_NE(text.find("attention: avx2 declined: above the target in use, portable\n"), std::string::npos);
    ASSERT_EQ(call.run(plan), QUIRE_OK);
    EXPECT_EQ(fields(logged.lines.back())[2], "call");
    quire_plan_destroy(plan);
}

TEST(Verbose, UnknownValueIsAnError) {
    for (const char* value : {"3", "yes", "11", " 1"}) {
        const Variable variable("QUIRE_VERBOSE", value);
        expect_no_context(std::string("QUIRE_VERBOSE is \"") + value + "\": must be 0, 1 or 2");
    }
}

TEST(Verbose, OffSaysNothingAndAllocatesNothing) {
    for (const char* value : {static_cast<const char*>(nullptr), "", "0"}) {
        const Variable variable("QUIRE_VERBOSE", value);
        LoggedContext logged;
        AttentionCall call;
        quire_plan* plan = nullptr;
        ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK);
        ASSERT_EQ(call.run(plan), QUIRE_OK);
        if (generates_code()) {  // portable allocates
            CountAllocations counted;
            ASSERT_EQ(call.run(plan), QUIRE_OK);
            EXPECT_EQ(counted.count(), 0);
        }
        EXPECT_TRUE(logged.lines.empty());
        quire_plan_destroy(plan);
    }
}

// A call that has run never fails for want of memory to say so.
TEST(Verbose, OutOfMemoryFailsBeforeTheCall) {
    if (!generates_code()) GTEST_SKIP() << "portable is written to be read, and allocates while it runs";
    const Variable variable("QUIRE_VERBOSE", "1");
    quire_context* context = nullptr;
    quire_context_options options = {};
    options.struct_size = sizeof options;
    options.num_threads = 1;
    options.log = [](void*, const char*) {};
    ASSERT_EQ(quire_context_create(&options, &context), QUIRE_OK);
    AttentionCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(context, &plan), QUIRE_OK);
    ASSERT_EQ(call.run(plan), QUIRE_OK);
    const std::vector<uint8_t> expected = call.buffers.written();
    for (int64_t first = 0;; ++first) {
        AttentionCall again;
        const std::vector<uint8_t> before = again.buffers.written();
        quire_status status;
        bool refused;
        {
            RefuseAllocations refuse(first, false);
            status = again.run(plan);
            refused = refuse.refused();
        }
        if (status == QUIRE_OK) {
            EXPECT_EQ(again.buffers.written(), expected) << first;
        } else {
            EXPECT_EQ(status, QUIRE_OUT_OF_MEMORY);
            EXPECT_EQ(again.buffers.written(), before) << first;
        }
        if (!refused) break;
    }
    quire_plan_destroy(plan);
    quire_context_destroy(context);
}

// ---- predictions ----

TEST(CostOfACacheRow, CountsScalesAndBlocks) {
    const quire_format f32 = {QUIRE_F32, 0, QUIRE_NONE}, int4 = {QUIRE_INT4, 32, QUIRE_F16},
                       q8_0 = {QUIRE_Q8_0, 0, QUIRE_NONE};
    EXPECT_EQ(cache_row_bytes({1, 64, 32, f32, f32, 0}), 64 * 4 + 32 * 4);
    EXPECT_EQ(cache_row_bytes({1, 64, 32, int4, int4, 0}), (64 / 2 + 2 * 2) + (32 / 2 + 1 * 2));
    EXPECT_EQ(cache_row_bytes({1, 64, 32, q8_0, f32, 0}), 2 * 34 + 32 * 4);
}

class Predict : public testing::Test {
protected:
    Predict() {
        EXPECT_EQ(call_.plan(inline_context(), &plan_), QUIRE_OK);
        EXPECT_EQ(call_.prepare(plan_, &run_), QUIRE_OK);
        prediction_.struct_size = sizeof prediction_;
        limits_.struct_size = sizeof limits_;
    }
    ~Predict() override {
        quire_run_release(run_);
        quire_plan_destroy(plan_);
    }
    AttentionCall call_{AttentionCall::Keys::dense};
    quire_plan* plan_ = nullptr;
    quire_run* run_ = nullptr;
    quire_limits limits_ = {};
    quire_prediction prediction_ = {};
};

TEST_F(Predict, TheLongerTimeIsTheBound) {
    limits_.bytes_per_second = 1e9;
    limits_.flops_per_second = 1e18;
    ASSERT_EQ(quire_run_predict(run_, &limits_, &prediction_), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(prediction_.bound, QUIRE_BOUND_MEMORY);
    EXPECT_EQ(prediction_.seconds, prediction_.bytes / 1e9);
    limits_.bytes_per_second = 1e18;
    limits_.flops_per_second = 1e9;
    ASSERT_EQ(quire_run_predict(run_, &limits_, &prediction_), QUIRE_OK);
    EXPECT_EQ(prediction_.bound, QUIRE_BOUND_COMPUTE);
    EXPECT_EQ(prediction_.seconds, prediction_.flops / 1e9);
    EXPECT_GT(prediction_.flops, 0);
}

TEST_F(Predict, UnknownLimitsGiveNoBound) {
    limits_.bytes_per_second = 1e9;
    ASSERT_EQ(quire_run_predict(run_, &limits_, &prediction_), QUIRE_OK);
    EXPECT_EQ(prediction_.bound, QUIRE_BOUND_UNKNOWN);
    EXPECT_EQ(prediction_.seconds, 0);
    EXPECT_GT(prediction_.bytes, 0);
}

TEST_F(Predict, WrongArguments) {
    EXPECT_EQ(quire_run_predict(nullptr, nullptr, &prediction_), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "run is NULL: must be a prepared run");
    EXPECT_EQ(quire_run_predict(run_, nullptr, nullptr), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "prediction is NULL: must point at a struct");
    limits_.flops_per_second = -1;
    EXPECT_EQ(quire_run_predict(run_, &limits_, &prediction_), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "limits.flops_per_second is -1: must be at least 0");
    prediction_.struct_size = 3;
    EXPECT_EQ(quire_run_predict(run_, nullptr, &prediction_), QUIRE_INVALID_ARGUMENT);
    EXPECT_EQ(prediction_.bytes, 0);
}

// ---- explain as JSON ----

TEST(ExplainJson, HasTargetKernelsAndWhatDeclined) {
    LoggedContext logged(1, "portable");
    AttentionCall call;
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(logged.context, &plan), QUIRE_OK);
    const std::string json = quire_plan_explain_json(plan);
    EXPECT_EQ(
        json.find(
            "{\"op\": \"quire_attention\", \"parts\": {\"attention\": {\"target\": \"portable\", "
            "\"declined\": [{\"target\": \"avx512_vnni_bf16_amx\", \"reason\": \"above the target in use, "
            "portable\"}, "),
        0u)
        << json;
    EXPECT_NE(json.find("], \"kernels\": []}}, \"notes\": {"), std::string::npos) << json;
    quire_plan_destroy(plan);
    EXPECT_STREQ(quire_plan_explain_json(nullptr), "");
}

}  // namespace
}  // namespace quire::test
