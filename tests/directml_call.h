// A valid call of DML_MULTIHEAD_ATTENTION1 with all of its tensors, small.
#pragma once
#include "tests/api_call.h"

namespace quire::test {

// Two sequences, S 3, N 3, past 4; H 4, Hk 2, D 16, Dv 8; every tensor that goes with separate ones.
class DirectmlCall : public Call {
public:
    enum class Form { separate, query_key, key_value, all, past_only };

    explicit DirectmlCall(Form form = Form::separate) : desc(), args() {
        quire_directml_multihead_attention1_desc_init(&desc);
        const bool equal = form == Form::query_key || form == Form::all, past_only = form == Form::past_only;
        desc.scale = 0.25f;
        desc.query_head_count = 4;
        desc.key_value_head_count = equal ? 4 : 2;
        desc.mask_type = QUIRE_DIRECTML_MASK_KEY_SEQUENCE_END_START;
        desc.head_size = 16;
        desc.value_head_size = form == Form::key_value || form == Form::all ? 16 : 8;
        const int64_t Hk = desc.key_value_head_count, D = 16, Dv = desc.value_head_size;
        const int64_t T = past_only ? 4 : 7;
        query = buffers.numbers(QUIRE_F32, {2, 3, 4 * D});
        key = buffers.numbers(QUIRE_F32, {2, 3, Hk * D});
        value = buffers.numbers(QUIRE_F32, {1, 2, 3, Hk * Dv});
        query_key = buffers.numbers(QUIRE_F32, {2, 3, 4, 2, D});
        key_value = buffers.numbers(QUIRE_F32, {2, 3, Hk, 2, D});
        all = buffers.numbers(QUIRE_F32, {2, 3, 4, 3, D});
        bias = buffers.numbers(QUIRE_F32, {4 * D + Hk * D + Hk * Dv});
        mask = buffers.indices({2, 2}, {6, 5, 1, 0}, QUIRE_INT32);
        relative = buffers.numbers(QUIRE_F32, {1, 4, 3, T});
        past_key = buffers.numbers(QUIRE_F32, {2, Hk, 4, D});
        past_value = buffers.numbers(QUIRE_F32, {2, Hk, 4, Dv});
        lengths = buffers.indices({2}, {4, 2}, QUIRE_F32);
        output = buffers.output(QUIRE_F32, {2, 3, 4 * Dv});
        present_key = buffers.output(QUIRE_F32, {2, Hk, T, D});
        present_value = buffers.output(QUIRE_F32, {2, Hk, T, Dv});
        args.struct_size = sizeof args;
        if (form != Form::query_key && form != Form::all) args.query_tensor = &query;
        if (form == Form::separate) args.key_tensor = &key;
        if (form == Form::separate || form == Form::query_key) args.value_tensor = &value;
        if (form == Form::query_key) args.stacked_query_key_tensor = &query_key;
        if (form == Form::key_value) args.stacked_key_value_tensor = &key_value;
        if (form == Form::all) args.stacked_query_key_value_tensor = &all;
        args.bias_tensor = &bias;
        args.mask_tensor = &mask;
        args.relative_position_bias_tensor = &relative;
        args.past_key_tensor = &past_key;
        args.past_value_tensor = &past_value;
        args.past_sequence_lengths_tensor = &lengths;
        args.output_tensor = &output;
        args.output_present_key_tensor = &present_key;
        args.output_present_value_tensor = &present_value;
    }
    quire_status plan(quire_context* context, quire_plan** plan) const override {
        return quire_directml_multihead_attention1_plan(context, &desc, plan);
    }
    quire_status run(const quire_plan* plan) override {
        return quire_directml_multihead_attention1(plan, &args);
    }
    quire_status prepare(const quire_plan* plan, quire_run** run) override {
        return quire_prepare_directml_multihead_attention1(plan, &args, run);
    }

    quire_directml_multihead_attention1_desc desc;
    quire_directml_multihead_attention1_args args;
    quire_tensor query, key, value, query_key, key_value, all, bias, mask, relative, past_key, past_value,
        lengths, output, present_key, present_value;
};

}  // namespace quire::test
