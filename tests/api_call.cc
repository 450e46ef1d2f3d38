#include "tests/api_call.h"

#include <gtest/gtest.h>

#include <cstring>

#include "src/format.h"

namespace quire::test {

// ---- Buffers ----

quire_tensor Buffers::add(Role role, quire_type type, const std::vector<int64_t>& shape) {
    int64_t bits = type_bits(type);
    for (int64_t length : shape) bits *= length;
    buffers_.push_back({role, role == Role::output, GuardedBuffer(size_t(bits / 8))});
    void* data = buffers_.back().memory.data();
    return quire_tensor_of(data, type, int32_t(shape.size()), shape.data());
}

quire_tensor Buffers::numbers(quire_type type, const std::vector<int64_t>& shape) {
    quire_tensor t = add(Role::numbers, type, shape);
    const GuardedBuffer& memory = buffers_.back().memory;
    const int64_t count = int64_t(memory.size()) * 8 / type_bits(type);
    ++seed_;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t small = (i * 37 + seed_ * 11) % 15 - 7;  // -7 .. 7
        if (type == QUIRE_INT8 || type == QUIRE_INT4)
            store_code(type, t.data, i, int(small));
        else if (type == QUIRE_BOOL)
            memory.as<uint8_t>()[i] = uint8_t(small > -5);
        else
            store_number(type, t.data, i, float(small) / 8);
    }
    return t;
}

quire_tensor Buffers::indices(const std::vector<int64_t>& shape, const std::vector<int64_t>& values,
                              quire_type type) {
    quire_tensor t = add(Role::indices, type, shape);
    for (size_t i = 0; i < values.size(); ++i) {
        if (type == QUIRE_INT64)
            static_cast<int64_t*>(t.data)[i] = values[i];
        else if (type == QUIRE_INT32)
            static_cast<int32_t*>(t.data)[i] = int32_t(values[i]);
        else
            store_number(type, t.data, int64_t(i), float(values[i]));
    }
    return t;
}

quire_tensor Buffers::output(quire_type type, const std::vector<int64_t>& shape) {
    quire_tensor t = add(Role::output, type, shape);
    buffers_.back().memory.fill(kFillByte);
    return t;
}

void Buffers::also_written(const quire_tensor& tensor) {
    for (Buffer& buffer : buffers_)
        if (buffer.memory.data() == tensor.data) buffer.written = true;
}

void Buffers::lock() {
    for (Buffer& buffer : buffers_)
        buffer.role == Role::indices ? buffer.memory.forbid_writes() : buffer.memory.forbid_access();
}

void Buffers::unlock() {
    for (Buffer& buffer : buffers_) buffer.memory.allow_access();
}

std::vector<uint8_t> Buffers::bytes() const {
    std::vector<uint8_t> all;
    for (const Buffer& buffer : buffers_) {
        const std::vector<uint8_t> bytes = buffer.memory.bytes();
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

std::vector<uint8_t> Buffers::written() const {
    std::vector<uint8_t> all;
    for (const Buffer& buffer : buffers_) {
        if (!buffer.written) continue;
        const std::vector<uint8_t> bytes = buffer.memory.bytes();
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

std::vector<uint8_t> Call::result(quire_context* context) {
    quire_plan* made = nullptr;
    EXPECT_EQ(plan(context, &made), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(run(made), QUIRE_OK) << quire_last_error();
    quire_plan_destroy(made);
    return buffers.written();
}

quire_context* inline_context() {
    static quire_context* const context = [] {
        quire_context_options options = {};
        options.struct_size = sizeof options;
        options.num_threads = 1;
        quire_context* made = nullptr;
        EXPECT_EQ(quire_context_create(&options, &made), QUIRE_OK) << quire_last_error();
        return made;
    }();
    return context;
}

// ---- AttentionCall ----

AttentionCall::AttentionCall(Keys keys) : desc(), args() {
    quire_attention_desc_init(&desc);
    desc.num_heads = 4;
    desc.num_kv_heads = 2;
    desc.head_dim = 16;
    desc.value_head_dim = 8;
    args.struct_size = sizeof args;
    if (keys == Keys::pages) make_pages();
    if (keys == Keys::int4_rows) make_int4_rows();
    if (keys == Keys::dense) make_dense();
    args.query = &query;
    args.key = &key;
    args.value = &value;
    args.output = &output;
}

void AttentionCall::make_pages() {
    desc.is_causal = 1;
    desc.page_size = 4;
    desc.key_format = {QUIRE_INT8, 8, QUIRE_F32};
    desc.value_format = {QUIRE_F16, 0, QUIRE_NONE};
    query = buffers.numbers(QUIRE_F32, {4, 4, 16});
    key = buffers.numbers(QUIRE_INT8, {20, 2, 16});
    value = buffers.numbers(QUIRE_F16, {20, 2, 8});
    key_scale = buffers.numbers(QUIRE_F32, {20, 2, 2});
    seqstarts = buffers.indices({3}, {0, 1, 4});
    kvstarts = buffers.indices({3}, {0, 5, 11});
    cachestarts = buffers.indices({2, 3}, {0, 4, INT64_MAX, 10, 14, -1});  // the third pages are not used
    attn_mask = buffers.numbers(QUIRE_F32, {4, 4, 12});
    sinks = buffers.numbers(QUIRE_F32, {4});
    query_positions = buffers.indices({2}, {4, 3});
    key_begin = buffers.indices({2}, {0, 1});
    key_end = buffers.indices({2}, {5, 6});
    tree_mask = buffers.indices({4, 1}, {1, 1, 3, 7});
    attn_mask_slopes = buffers.numbers(QUIRE_F32, {4});
    output = buffers.output(QUIRE_F32, {4, 4, 8});
    lse = buffers.output(QUIRE_F32, {4, 4});
    args.key_scale = &key_scale;
    args.seqstarts = &seqstarts;
    args.kvstarts = &kvstarts;
    args.cachestarts = &cachestarts;
    args.attn_mask = &attn_mask;
    args.sinks = &sinks;
    args.decoding_batches = 1;
    args.lse = &lse;
    args.query_positions = &query_positions;
    args.key_begin = &key_begin;
    args.key_end = &key_end;
    args.tree_mask = &tree_mask;
    args.attn_mask_slopes = &attn_mask_slopes;
}

void AttentionCall::make_int4_rows() {
    desc.key_format = {QUIRE_INT4, 8, QUIRE_F32};
    desc.value_format = {QUIRE_INT4, 2, QUIRE_F16};
    query = buffers.numbers(QUIRE_F32, {4, 4, 16});
    key = buffers.numbers(QUIRE_INT4, {20, 2, 16});
    value = buffers.numbers(QUIRE_INT4, {20, 2, 8});
    key_scale = buffers.numbers(QUIRE_F32, {20, 2, 2});
    value_scale = buffers.numbers(QUIRE_F16, {20, 2, 4});
    seqstarts = buffers.indices({3}, {0, 1, 4});
    kvstarts = buffers.indices({3}, {0, 5, 11});
    cachestarts = buffers.indices({2}, {15, 2});
    output = buffers.output(QUIRE_F32, {4, 4, 8});
    args.key_scale = &key_scale;
    args.value_scale = &value_scale;
    args.seqstarts = &seqstarts;
    args.kvstarts = &kvstarts;
    args.cachestarts = &cachestarts;
}

void AttentionCall::make_dense() {
    query = buffers.numbers(QUIRE_F32, {2, 3, 4, 16});
    key = buffers.numbers(QUIRE_F32, {2, 6, 2, 16});
    value = buffers.numbers(QUIRE_F32, {2, 6, 2, 8});
    attn_mask = buffers.numbers(QUIRE_BOOL, {2, 4, 3, 6});
    output = buffers.output(QUIRE_F32, {2, 3, 4, 8});
    lse = buffers.output(QUIRE_F32, {2, 3, 4});
    args.attn_mask = &attn_mask;
    args.lse = &lse;
}

quire_status AttentionCall::plan(quire_context* context, quire_plan** plan) const {
    return quire_attention_plan(context, &desc, plan);
}
quire_status AttentionCall::run(const quire_plan* plan) { return quire_attention(plan, &args); }
quire_status AttentionCall::prepare(const quire_plan* plan, quire_run** run) {
    return quire_prepare_attention(plan, &args, run);
}

// ---- AppendCall ----

AppendCall::AppendCall() : desc(), args() {
    quire_append_desc_init(&desc);
    desc.num_kv_heads = 2;
    desc.head_dim = 16;
    desc.value_head_dim = 8;
    desc.key_format = {QUIRE_INT8, 8, QUIRE_F32};
    desc.value_format = {QUIRE_F16, 0, QUIRE_NONE};
    desc.page_size = 4;
    new_key = buffers.numbers(QUIRE_F32, {4, 2, 16});
    new_value = buffers.numbers(QUIRE_F32, {4, 2, 8});
    key = buffers.numbers(QUIRE_INT8, {20, 2, 16});
    value = buffers.numbers(QUIRE_F16, {20, 2, 8});
    key_scale = buffers.numbers(QUIRE_F32, {20, 2, 2});
    seqstarts = buffers.indices({3}, {0, 1, 4});
    start_pos = buffers.indices({2}, {4, 3});
    cachestarts = buffers.indices({2, 3}, {0, 4, INT64_MAX, 10, 14, -1});
    for (const quire_tensor* t : {&key, &value, &key_scale}) buffers.also_written(*t);
    args.struct_size = sizeof args;
    args.new_key = &new_key;
    args.new_value = &new_value;
    args.key = &key;
    args.value = &value;
    args.key_scale = &key_scale;
    args.seqstarts = &seqstarts;
    args.start_pos = &start_pos;
    args.cachestarts = &cachestarts;
}

quire_status AppendCall::plan(quire_context* context, quire_plan** plan) const {
    return quire_append_plan(context, &desc, plan);
}
quire_status AppendCall::run(const quire_plan* plan) { return quire_append(plan, &args); }
quire_status AppendCall::prepare(const quire_plan* plan, quire_run** run) {
    return quire_prepare_append(plan, &args, run);
}

// ---- PmxCall ----

PmxCall::PmxCall() : desc(), args() {
    quire_pmx_dynamic_multi_head_cache_attention_desc_init(&desc);
    desc.num_heads = 4;
    desc.num_kv_heads = 2;
    desc.head_dim = 16;
    desc.is_causal = 1;
    desc.num_layer = 2;
    desc.layer_idx = 1;
    desc.quant_bit = 8;
    desc.cache_mode = 1;
    desc.page_size = 4;
    query = buffers.numbers(QUIRE_F32, {4, 4, 16});
    current_key = buffers.numbers(QUIRE_F32, {4, 2, 16});
    current_value = buffers.numbers(QUIRE_F32, {4, 2, 16});
    seqstarts = buffers.indices({3}, {0, 1, 4});
    kvstarts = buffers.indices({3}, {0, 5, 11});
    cachestarts = buffers.indices({2, 3}, {0, 4, INT64_MAX, 10, 14, -1});
    start_pos = buffers.indices({2}, {4, 3});
    cache = buffers.numbers(QUIRE_INT8, {20, 2, 2, 2, 16});
    scale = buffers.numbers(QUIRE_F32, {20, 2, 2, 2, 2});
    attn_mask = buffers.numbers(QUIRE_F32, {4, 12});
    sinks = buffers.numbers(QUIRE_F32, {4});
    attn_output = buffers.output(QUIRE_F32, {4, 4, 16});
    lse = buffers.output(QUIRE_F32, {4, 4});
    for (const quire_tensor* t : {&cache, &scale}) buffers.also_written(*t);
    args.struct_size = sizeof args;
    args.query = &query;
    args.current_key = &current_key;
    args.current_value = &current_value;
    args.seqstarts = &seqstarts;
    args.kvstarts = &kvstarts;
    args.cachestarts = &cachestarts;
    args.start_pos = &start_pos;
    args.decoding_batches = 1;
    args.cache = &cache;
    args.scale = &scale;
    args.attn_mask = &attn_mask;
    args.sinks = &sinks;
    args.attn_output = &attn_output;
    args.lse = &lse;
}

quire_status PmxCall::plan(quire_context* context, quire_plan** plan) const {
    return quire_pmx_dynamic_multi_head_cache_attention_plan(context, &desc, plan);
}
quire_status PmxCall::run(const quire_plan* plan) {
    return quire_pmx_dynamic_multi_head_cache_attention(plan, &args);
}
quire_status PmxCall::prepare(const quire_plan* plan, quire_run** run) {
    return quire_prepare_pmx_dynamic_multi_head_cache_attention(plan, &args, run);
}

// ---- MergeCall ----

MergeCall::MergeCall() {
    output_a = buffers.numbers(QUIRE_F16, {3, 2, 8});
    lse_a = buffers.numbers(QUIRE_F32, {3, 2});
    output_b = buffers.numbers(QUIRE_F16, {3, 2, 8});
    lse_b = buffers.numbers(QUIRE_F32, {3, 2});
    output = buffers.output(QUIRE_F16, {3, 2, 8});
    lse = buffers.output(QUIRE_F32, {3, 2});
    a = &output_a;
    lse_of_a = &lse_a;
    b = &output_b;
    lse_of_b = &lse_b;
    merged = &output;
    merged_lse = &lse;
}

quire_status MergeCall::plan(quire_context*, quire_plan**) const { return QUIRE_OK; }
quire_status MergeCall::run(const quire_plan*) {
    return quire_merge_states(inline_context(), a, lse_of_a, b, lse_of_b, merged, merged_lse);
}
quire_status MergeCall::prepare(const quire_plan* plan, quire_run** made) {
    *made = nullptr;
    return run(plan);
}

}  // namespace quire::test
