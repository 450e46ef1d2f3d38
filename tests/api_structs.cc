// Structs that programs of other versions were compiled with; init functions, version, views.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/api_call.h"

namespace quire::test {
namespace {

// A struct of `size` bytes that begins as `from` does; what is past it is 0.
template <typename T>
class Sized {
public:
    Sized(const T& from, size_t size) : bytes_(std::max(size, sizeof(size_t)), 0) {
        std::memcpy(bytes_.data(), &from, std::min(sizeof(T), bytes_.size()));
        get()->struct_size = size;
    }
    T* get() { return reinterpret_cast<T*>(bytes_.data()); }
    unsigned char& operator[](size_t i) { return bytes_[i]; }

private:
    std::vector<unsigned char> bytes_;
};

void expect_message(quire_status status, const std::string& message) {
    EXPECT_EQ(status, QUIRE_INVALID_ARGUMENT);
    EXPECT_EQ(quire_last_error(), message);
}

// What holds for every struct: `use` calls the function that takes it.
template <typename T>
void check_sizes(const std::string& name, const T& valid, const std::function<quire_status(const T*)>& use) {
    SCOPED_TRACE(name);
    const std::string known = std::to_string(sizeof(T));
    // Those in the middle would cut a pointer in two.
    for (size_t size : {size_t(0), size_t(7), size_t(12), sizeof(T) - 4, size_t(65537), SIZE_MAX}) {
        Sized<T> wrong(valid, std::min(size, size_t(65537)));
        wrong.get()->struct_size = size;
        expect_message(use(wrong.get()), name + ".struct_size is " + std::to_string(size) +
                                             ": must be sizeof the struct, " + known);
    }
    for (size_t more : {8, 24, 1000}) {  // of a newer program, which leaves what it added at its default
        Sized<T> longer(valid, sizeof(T) + more);
        EXPECT_EQ(use(longer.get()), QUIRE_OK) << quire_last_error();
    }
    Sized<T> asking(valid, sizeof(T) + 24);
    asking[sizeof(T) + 17] = 1;
    expect_message(use(asking.get()), name + ".struct_size is " + std::to_string(sizeof(T) + 24) + ": byte " +
                                          std::to_string(sizeof(T) + 17) +
                                          " must be 0, this version of quire knows only " + known);
}

template <typename CallType>
void check_call(CallType& call) {
    using Desc = decltype(call.desc);
    using Args = decltype(call.args);
    quire_plan* plan = nullptr;
    ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    check_sizes<Desc>("desc", call.desc, [&](const Desc* desc) {
        quire_plan* made = nullptr;
        const quire_status status = call.plan_of(desc, &made);
        quire_plan_destroy(made);
        return status;
    });
    check_sizes<Args>("args", call.args, [&](const Args* args) { return call.run_of(plan, args); });
    quire_plan_destroy(plan);
}

struct Attention : AttentionCall {
    static quire_status plan_of(const quire_attention_desc* d, quire_plan** plan) {
        return quire_attention_plan(inline_context(), d, plan);
    }
    static quire_status run_of(const quire_plan* plan, const quire_attention_args* a) {
        return quire_attention(plan, a);
    }
};
struct Append : AppendCall {
    static quire_status plan_of(const quire_append_desc* d, quire_plan** plan) {
        return quire_append_plan(inline_context(), d, plan);
    }
    static quire_status run_of(const quire_plan* plan, const quire_append_args* a) {
        return quire_append(plan, a);
    }
};
struct Pmx : PmxCall {
    static quire_status plan_of(const quire_pmx_dynamic_multi_head_cache_attention_desc* d,
                                quire_plan** plan) {
        return quire_pmx_dynamic_multi_head_cache_attention_plan(inline_context(), d, plan);
    }
    static quire_status run_of(const quire_plan* plan,
                               const quire_pmx_dynamic_multi_head_cache_attention_args* a) {
        return quire_pmx_dynamic_multi_head_cache_attention(plan, a);
    }
};

TEST(StructSize, Attention) {
    Attention call;
    check_call(call);
}
TEST(StructSize, Append) {
    Append call;
    check_call(call);
}
TEST(StructSize, Rotate) {
    quire_rotate_desc desc;
    quire_rotate_desc_init(&desc);
    desc.num_heads = 2;
    desc.head_dim = 8;
    desc.hadamard = 1;
    quire_plan* plan = nullptr;
    ASSERT_EQ(quire_rotate_plan(inline_context(), &desc, &plan), QUIRE_OK) << quire_last_error();
    check_sizes<quire_rotate_desc>("desc", desc, [](const quire_rotate_desc* d) {
        quire_plan* made = nullptr;
        const quire_status status = quire_rotate_plan(inline_context(), d, &made);
        quire_plan_destroy(made);
        return status;
    });
    std::vector<float> numbers(3 * 2 * 8);
    const int64_t shape[] = {3, 2, 8};
    const quire_tensor rows = quire_tensor_of(numbers.data(), QUIRE_F32, 3, shape);
    quire_rotate_args args = {};
    args.struct_size = sizeof args;
    args.input = args.output = &rows;
    check_sizes<quire_rotate_args>("args", args,
                                   [&](const quire_rotate_args* a) { return quire_rotate(plan, a); });
    quire_plan_destroy(plan);
}
TEST(StructSize, Pmx) {
    Pmx call;
    check_call(call);
}
TEST(StructSize, ContextOptions) {
    quire_context_options options = {};
    check_sizes<quire_context_options>("options", options, [](const quire_context_options* o) {
        quire_context* context = nullptr;
        const quire_status status = quire_context_create(o, &context);
        quire_context_destroy(context);
        return status;
    });
}

TEST(StructSize, Prediction) {
    AttentionCall call;
    quire_plan* plan = nullptr;
    quire_run* run = nullptr;
    ASSERT_EQ(call.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    ASSERT_EQ(call.prepare(plan, &run), QUIRE_OK) << quire_last_error();
    quire_prediction prediction = {};
    prediction.struct_size = sizeof prediction;
    check_sizes<quire_limits>("limits", quire_limits(), [&](const quire_limits* limits) {
        return quire_run_predict(run, limits, &prediction);
    });
    check_sizes<quire_prediction>("prediction", quire_prediction(), [&](const quire_prediction* to) {
        return quire_run_predict(run, nullptr, const_cast<quire_prediction*>(to));
    });
    // What an older program does not know is not written.
    Sized<quire_prediction> shorter({}, offsetof(quire_prediction, flops));
    ASSERT_EQ(quire_run_predict(run, nullptr, shorter.get()), QUIRE_OK) << quire_last_error();
    ASSERT_EQ(quire_run_predict(run, nullptr, &prediction), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(shorter.get()->bytes, prediction.bytes);
    quire_run_release(run);
    quire_plan_destroy(plan);
}

// An older program's struct ends before a field: the field has its default, whatever lies behind the struct.
TEST(StructSize, ShorterMeansDefaults) {
    AttentionCall older, usual;
    usual.args.key_begin = usual.args.key_end = usual.args.tree_mask = usual.args.attn_mask_slopes = nullptr;
    older.args.struct_size = offsetof(quire_attention_args, key_begin);
    EXPECT_EQ(older.result(inline_context()), usual.result(inline_context()));

    AttentionCall longer, top_left;
    top_left.desc.causal_corner = longer.desc.causal_corner = 1;
    for (AttentionCall* c : {&longer, &top_left, &usual, &older}) c->args.query_positions = nullptr;
    longer.desc.struct_size = offsetof(quire_attention_desc, causal_corner);
    EXPECT_NE(longer.result(inline_context()), top_left.result(inline_context()));
}

TEST(StructSize, OnlyItself) {
    quire_context_options options = {};
    options.struct_size = sizeof(size_t);
    options.num_threads = -5;  // not read
    options.target = reinterpret_cast<const char*>(8);
    quire_context* context = nullptr;
    EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    quire_context_destroy(context);
}

// ---- init functions ----

// A struct full of garbage, after init.
template <typename T>
T initialised(void (*init)(T*)) {
    T value;
    std::memset(static_cast<void*>(&value), 0xa5, sizeof value);
    init(&value);
    EXPECT_EQ(value.struct_size, sizeof value);
    return value;
}

TEST(Init, Attention) {
    const quire_attention_desc d = initialised(quire_attention_desc_init);
    EXPECT_EQ(d.type, QUIRE_F32);
    EXPECT_EQ(d.key_format.type, QUIRE_F32);
    EXPECT_EQ(d.value_format.type, QUIRE_F32);
    EXPECT_EQ(d.num_heads, 0);
    EXPECT_EQ(d.scale, 0);
    EXPECT_EQ(d.has_window, 0);
    EXPECT_EQ(d.page_size, 0);
    EXPECT_EQ(d.precision, QUIRE_PRECISION_HIGHEST);
    EXPECT_EQ(d.causal_corner, 0);
}

TEST(Init, Append) {
    const quire_append_desc d = initialised(quire_append_desc_init);
    EXPECT_EQ(d.type, QUIRE_F32);
    EXPECT_EQ(d.key_format.type, QUIRE_F32);
    EXPECT_EQ(d.value_format.type, QUIRE_F32);
    EXPECT_EQ(d.page_size, 0);
    EXPECT_EQ(d.rotary, QUIRE_ROTARY_NONE);
    EXPECT_EQ(d.rotary_dim, 0);
    EXPECT_EQ(d.hadamard_keys, 0);
    EXPECT_EQ(d.hadamard_values, 0);
}

TEST(Init, Rotate) {
    const quire_rotate_desc d = initialised(quire_rotate_desc_init);
    EXPECT_EQ(d.type, QUIRE_F32);
    EXPECT_EQ(d.rotary, QUIRE_ROTARY_NONE);
    EXPECT_EQ(d.hadamard, 0);
}

TEST(Init, Pmx) {
    const auto d = initialised(quire_pmx_dynamic_multi_head_cache_attention_desc_init);
    EXPECT_EQ(d.num_layer, 1);
    EXPECT_EQ(d.layer_idx, 0);
    EXPECT_EQ(d.quant_bit, 0);
    EXPECT_EQ(d.quant_group, 8);
    EXPECT_EQ(d.cache_mode, 0);
    EXPECT_EQ(d.cache_layout, 0);
    EXPECT_EQ(d.page_size, 128);
    EXPECT_EQ(d.query_type, QUIRE_F32);
    EXPECT_EQ(d.cache_type, QUIRE_NONE);
    EXPECT_EQ(d.scale_type, QUIRE_NONE);
}

TEST(Init, Mindspore) {
    const auto d = initialised(quire_mindspore_multi_head_attention_desc_init);
    EXPECT_EQ(d.hidden_dropout_rate, 0.1f);
    EXPECT_EQ(d.attention_dropout_rate, 0.1f);
    EXPECT_EQ(d.compute_dtype, QUIRE_F16);
    EXPECT_EQ(d.softmax_compute_type, QUIRE_F32);
    EXPECT_EQ(d.param_init_type, QUIRE_F32);
    EXPECT_EQ(d.use_past, 0);
    EXPECT_EQ(d.parallel_config, 0);
    EXPECT_EQ(d.dense1_weight, nullptr);
    EXPECT_EQ(d.precision, QUIRE_PRECISION_HIGHEST);
}

// ---- version ----

TEST(Version, IsThatOfTheHeader) {
    const std::string header = std::to_string(QUIRE_VERSION_MAJOR) + "." +
                               std::to_string(QUIRE_VERSION_MINOR) + "." +
                               std::to_string(QUIRE_VERSION_PATCH);
    EXPECT_EQ(quire_version(), header);
    EXPECT_EQ(quire_version(), quire_version());  // the same text, not a copy
}

// ---- views ----

TEST(TensorOf, IsRowMajor) {
    float data[24];
    const int64_t shape[] = {2, 3, 4};
    const quire_tensor t = quire_tensor_of(data, QUIRE_F32, 3, shape);
    EXPECT_EQ(t.data, data);
    EXPECT_EQ(t.type, QUIRE_F32);
    EXPECT_EQ(t.rank, 3);
    EXPECT_EQ(std::vector<int64_t>(t.shape, t.shape + 4), (std::vector<int64_t>{2, 3, 4, 0}));
    EXPECT_EQ(std::vector<int64_t>(t.strides, t.strides + 4), (std::vector<int64_t>{12, 4, 1, 0}));
}

TEST(TensorOf, AnyRank) {
    const int64_t shape[] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
    EXPECT_EQ(quire_tensor_of(nullptr, QUIRE_INT64, 0, nullptr).rank, 0);
    EXPECT_EQ(quire_tensor_of(nullptr, QUIRE_INT64, 8, shape).strides[0], 16);
    // What cannot be a tensor is kept, to be reported where it is used.
    EXPECT_EQ(quire_tensor_of(nullptr, QUIRE_INT64, 10, shape).rank, 10);
    EXPECT_EQ(quire_tensor_of(nullptr, QUIRE_INT64, -1, shape).rank, -1);
    const int64_t large[] = {2, INT64_MAX, 4};
    const quire_tensor overflowing = quire_tensor_of(nullptr, QUIRE_F32, 3, large);
    EXPECT_EQ(overflowing.shape[1], INT64_MAX);
}

}  // namespace
}  // namespace quire::test
