// extern "C": the operators of the five documents.
#include <cmath>

#include "src/api_calls.h"

using namespace quire;

void quire_pmx_dynamic_multi_head_cache_attention_desc_init(
    quire_pmx_dynamic_multi_head_cache_attention_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->num_layer = 1;
    desc->quant_group = 8;
    desc->page_size = 128;
    desc->query_type = QUIRE_F32;
}

quire_status quire_pmx_dynamic_multi_head_cache_attention_plan(
    quire_context* context, const quire_pmx_dynamic_multi_head_cache_attention_desc* desc,
    quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::pmx_dynamic_multi_head_cache_attention,
                    make_pmx_dynamic_multi_head_cache_attention);
}

quire_status quire_pmx_dynamic_multi_head_cache_attention(
    const quire_plan* plan, const quire_pmx_dynamic_multi_head_cache_attention_args* args) {
    return run_now(plan, args, Operator::pmx_dynamic_multi_head_cache_attention,
                   prepare_pmx_dynamic_multi_head_cache_attention);
}

quire_status quire_prepare_pmx_dynamic_multi_head_cache_attention(
    const quire_plan* plan, const quire_pmx_dynamic_multi_head_cache_attention_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::pmx_dynamic_multi_head_cache_attention,
                        prepare_pmx_dynamic_multi_head_cache_attention, run);
}

void quire_pmx_dynamic_multi_head_attention_desc_init(quire_pmx_dynamic_multi_head_attention_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->type = QUIRE_F32;
}

quire_status quire_pmx_dynamic_multi_head_attention_plan(
    quire_context* context, const quire_pmx_dynamic_multi_head_attention_desc* desc, quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::pmx_dynamic_multi_head_attention,
                    make_pmx_dynamic_multi_head_attention);
}

quire_status quire_pmx_dynamic_multi_head_attention(const quire_plan* plan,
                                                    const quire_pmx_dynamic_multi_head_attention_args* args) {
    return run_now(plan, args, Operator::pmx_dynamic_multi_head_attention,
                   prepare_pmx_dynamic_multi_head_attention);
}

quire_status quire_prepare_pmx_dynamic_multi_head_attention(
    const quire_plan* plan, const quire_pmx_dynamic_multi_head_attention_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::pmx_dynamic_multi_head_attention,
                        prepare_pmx_dynamic_multi_head_attention, run);
}

void quire_pmx_dynamic_key_value_cache_desc_init(quire_pmx_dynamic_key_value_cache_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->num_layer = 1;
    desc->quant_group = 8;
    desc->num_repeat = 1;
    desc->page_size = 128;
    desc->type = QUIRE_F32;
}

quire_status quire_pmx_dynamic_key_value_cache_plan(quire_context* context,
                                                    const quire_pmx_dynamic_key_value_cache_desc* desc,
                                                    quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::pmx_dynamic_key_value_cache,
                    make_pmx_dynamic_key_value_cache);
}

quire_status quire_pmx_dynamic_key_value_cache(const quire_plan* plan,
                                               const quire_pmx_dynamic_key_value_cache_args* args) {
    return run_now(plan, args, Operator::pmx_dynamic_key_value_cache, prepare_pmx_dynamic_key_value_cache);
}

quire_status quire_prepare_pmx_dynamic_key_value_cache(const quire_plan* plan,
                                                       const quire_pmx_dynamic_key_value_cache_args* args,
                                                       quire_run** run) {
    return prepare_only(plan, args, Operator::pmx_dynamic_key_value_cache,
                        prepare_pmx_dynamic_key_value_cache, run);
}

void quire_pmx_multi_head_cache_attention_desc_init(quire_pmx_multi_head_cache_attention_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->num_layer = 1;
    desc->quant_group = 8;
    desc->query_type = QUIRE_F32;
}

quire_status quire_pmx_multi_head_cache_attention_plan(quire_context* context,
                                                       const quire_pmx_multi_head_cache_attention_desc* desc,
                                                       quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::pmx_multi_head_cache_attention,
                    make_pmx_multi_head_cache_attention);
}

quire_status quire_pmx_multi_head_cache_attention(const quire_plan* plan,
                                                  const quire_pmx_multi_head_cache_attention_args* args) {
    return run_now(plan, args, Operator::pmx_multi_head_cache_attention,
                   prepare_pmx_multi_head_cache_attention);
}

quire_status quire_prepare_pmx_multi_head_cache_attention(
    const quire_plan* plan, const quire_pmx_multi_head_cache_attention_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::pmx_multi_head_cache_attention,
                        prepare_pmx_multi_head_cache_attention, run);
}

void quire_pmx_multi_head_attention_desc_init(quire_pmx_multi_head_attention_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->type = QUIRE_F32;
}

quire_status quire_pmx_multi_head_attention_plan(quire_context* context,
                                                 const quire_pmx_multi_head_attention_desc* desc,
                                                 quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::pmx_multi_head_attention, make_pmx_multi_head_attention);
}

quire_status quire_pmx_multi_head_attention(const quire_plan* plan,
                                            const quire_pmx_multi_head_attention_args* args) {
    return run_now(plan, args, Operator::pmx_multi_head_attention, prepare_pmx_multi_head_attention);
}

quire_status quire_prepare_pmx_multi_head_attention(const quire_plan* plan,
                                                    const quire_pmx_multi_head_attention_args* args,
                                                    quire_run** run) {
    return prepare_only(plan, args, Operator::pmx_multi_head_attention, prepare_pmx_multi_head_attention,
                        run);
}

void quire_pmx_key_value_cache_desc_init(quire_pmx_key_value_cache_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->num_layer = 1;
    desc->quant_group = 8;
    desc->num_repeat = 1;
    desc->type = QUIRE_F32;
}

quire_status quire_pmx_key_value_cache_plan(quire_context* context,
                                            const quire_pmx_key_value_cache_desc* desc, quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::pmx_key_value_cache, make_pmx_key_value_cache);
}

quire_status quire_pmx_key_value_cache(const quire_plan* plan, const quire_pmx_key_value_cache_args* args) {
    return run_now(plan, args, Operator::pmx_key_value_cache, prepare_pmx_key_value_cache);
}

quire_status quire_prepare_pmx_key_value_cache(const quire_plan* plan,
                                               const quire_pmx_key_value_cache_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::pmx_key_value_cache, prepare_pmx_key_value_cache, run);
}

void quire_directml_multihead_attention1_desc_init(quire_directml_multihead_attention1_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->scale = NAN;  // the document has no default: forgetting it is an error
    desc->mask_filter_value = -10000;
    desc->data_type = QUIRE_F32;
}

quire_status quire_directml_multihead_attention1_plan(quire_context* context,
                                                      const quire_directml_multihead_attention1_desc* desc,
                                                      quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::directml_multihead_attention1, make_directml);
}

quire_status quire_directml_multihead_attention1(const quire_plan* plan,
                                                 const quire_directml_multihead_attention1_args* args) {
    return run_now(plan, args, Operator::directml_multihead_attention1, prepare_directml);
}

quire_status quire_prepare_directml_multihead_attention1(const quire_plan* plan,
                                                         const quire_directml_multihead_attention1_args* args,
                                                         quire_run** run) {
    return prepare_only(plan, args, Operator::directml_multihead_attention1, prepare_directml, run);
}

void quire_mindspore_multi_head_attention_desc_init(quire_mindspore_multi_head_attention_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->hidden_dropout_rate = desc->attention_dropout_rate = 0.1f;
    desc->compute_dtype = QUIRE_F16;
    desc->softmax_compute_type = desc->param_init_type = QUIRE_F32;
}

quire_status quire_mindspore_multi_head_attention_plan(quire_context* context,
                                                       const quire_mindspore_multi_head_attention_desc* desc,
                                                       quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::mindspore_multi_head_attention, make_mindspore);
}

quire_status quire_mindspore_multi_head_attention(const quire_plan* plan,
                                                  const quire_mindspore_multi_head_attention_args* args) {
    return run_now(plan, args, Operator::mindspore_multi_head_attention, prepare_mindspore);
}

quire_status quire_prepare_mindspore_multi_head_attention(
    const quire_plan* plan, const quire_mindspore_multi_head_attention_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::mindspore_multi_head_attention, prepare_mindspore, run);
}
