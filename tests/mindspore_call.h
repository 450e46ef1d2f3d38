// A valid call of quire_mindspore_multi_head_attention with all tensors that its form may have. B 2, H 2,
// hidden_size 8.
#pragma once
#include "tests/api_call.h"

namespace quire::test {

class MindsporeCall : public Call {
public:
    enum class Form {
        cross,  // without a past: S 3, T 5
        first,  // use_past, S = T = 4: the first iteration
        next    // one more token
    };

    explicit MindsporeCall(Form form = Form::cross, quire_type compute = QUIRE_F32) : desc(), args() {
        quire_mindspore_multi_head_attention_desc_init(&desc);
        const bool past = form != Form::cross;
        desc.batch_size = 2;
        desc.src_seq_length = past ? 4 : 3;
        desc.tgt_seq_length = past ? 4 : 5;
        desc.hidden_size = 8;
        desc.num_heads = 2;
        desc.compute_dtype = compute;
        desc.use_past = past;
        const int64_t S = form == Form::next ? 1 : desc.src_seq_length, T = desc.tgt_seq_length;
        const int64_t N = form == Form::next ? 1 : T;
        for (quire_tensor& weight : weights) weight = buffers.numbers(QUIRE_F32, {8, 8});
        for (quire_tensor& bias : biases) bias = buffers.numbers(QUIRE_F32, {8});
        desc.dense1_weight = &weights[0], desc.dense1_bias = &biases[0];
        desc.dense2_weight = &weights[1], desc.dense2_bias = &biases[1];
        desc.dense3_weight = &weights[2], desc.dense3_bias = &biases[2];
        desc.projection_weight = &weights[3], desc.projection_bias = &biases[3];
        query = buffers.numbers(QUIRE_F32, {2, S, 8});
        key = buffers.numbers(QUIRE_F16, {2, N, 8});
        value = buffers.numbers(QUIRE_F32, {2 * N, 8});
        mask = buffers.numbers(QUIRE_F32, {2, S, T});
        key_past = buffers.numbers(QUIRE_F16, {2, 2, 4, T});
        value_past = buffers.numbers(QUIRE_F16, {2, 2, T, 4});
        valid_length = buffers.indices({2}, {3, 1}, QUIRE_INT32);
        output = buffers.output(QUIRE_F32, {2, S, 8});
        key_present = buffers.output(compute, {2, 2, 4, T});
        value_present = buffers.output(compute, {2, 2, T, 4});
        args.struct_size = sizeof args;
        args.query_tensor = &query;
        args.key_tensor = &key;
        args.value_tensor = &value;
        args.attention_mask = &mask;
        if (past) {
            args.key_past = &key_past;
            args.value_past = &value_past;
            args.batch_valid_length = &valid_length;
        }
        args.is_first_iteration = form != Form::next;
        args.output = &output;
        args.layer_present_0 = &key_present;
        args.layer_present_1 = &value_present;
    }
    quire_status plan(quire_context* context, quire_plan** plan) const override {
        return quire_mindspore_multi_head_attention_plan(context, &desc, plan);
    }
    quire_status run(const quire_plan* plan) override {
        return quire_mindspore_multi_head_attention(plan, &args);
    }
    quire_status prepare(const quire_plan* plan, quire_run** run) override {
        return quire_prepare_mindspore_multi_head_attention(plan, &args, run);
    }

    quire_mindspore_multi_head_attention_desc desc;
    quire_mindspore_multi_head_attention_args args;
    quire_tensor weights[4], biases[4], query, key, value, mask, key_past, value_past, valid_length, output,
        key_present, value_present;
};

}  // namespace quire::test
