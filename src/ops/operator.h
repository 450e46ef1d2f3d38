// What every operator file builds on: the plan behind quire_plan, and copying the caller's structs in.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "src/context.h"
#include "src/execute.h"

namespace quire {

enum class Operator {
    attention,
    append,
    rotate,
    pmx_dynamic_multi_head_cache_attention,
    pmx_dynamic_multi_head_attention,
    pmx_dynamic_key_value_cache,
    pmx_multi_head_cache_attention,
    pmx_multi_head_attention,
    pmx_key_value_cache,
    directml_multihead_attention1,
    mindspore_multi_head_attention
};

struct PmxLayout;  // src/ops/pmx_common.h

struct PmxCacheSpec {
    int num_layer, layer_idx;
    const PmxLayout* layout;
};

struct DirectmlSpec {
    quire_directml_mask_type mask_type;
    float mask_filter_value;
};

// A layer: sizes, and its weights, packed.
struct MindsporeSpec {
    int64_t B, S, T;  // batch_size, src_seq_length, tgt_seq_length
    int hidden;
    float hidden_dropout, attention_dropout;
    bool use_past;
    int threads;
    enum { kQuery, kKey, kValue, kOutput, kLayers };
    std::shared_ptr<const DenseWeights> dense[kLayers];
};

const char* operator_name(Operator op);

}  // namespace quire

struct quire_plan {
    quire::Operator op{};
    std::shared_ptr<quire::Context> context;
    quire::AttentionPlan attention;
    quire::AppendPlan append;
    quire::ReadPlan read;
    quire::PmxCacheSpec pmx{};
    quire::DirectmlSpec directml{};
    quire::MindsporeSpec mindspore{};
    std::string explain, explain_json;
};

namespace quire {

// The caller's struct as this version knows it. A shorter one (of an older program) is filled up with zeros;
// a longer one (of a newer program) must not ask for what this version does not know.
template <typename T>
Status copy_in(const char* name, const T* from, T* to) {
    if (from == nullptr) return invalid("%s is NULL: must point at a struct", name);
    const size_t size = from->struct_size;
    // The size of every such struct is a multiple of a pointer's: another one would end within a field.
    if (size < sizeof(size_t) || size > 65536 || size % sizeof(size_t) != 0)
        return invalid("%s.struct_size is %zu: must be sizeof the struct, %zu", name, size, sizeof(T));
    const char* bytes = reinterpret_cast<const char*>(from);
    for (size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            return invalid("%s.struct_size is %zu: byte %zu must be 0, this version of quire knows only %zu",
                           name, size, i, sizeof(T));
    std::memset(static_cast<void*>(to), 0, sizeof(T));
    std::memcpy(static_cast<void*>(to), from, std::min(sizeof(T), size));
    return {};
}

// The parts of a plan, each on the best target that takes it; says once, in the context's log, when that is
// not the context's.
Status plan_attention(const AttentionSpec& spec, quire_plan* plan);
// `name`: append or rotate.
Status plan_append(const char* name, const AppendSpec& spec, quire_plan* plan);
Status plan_read(const ReadSpec& spec, quire_plan* plan);

Status check_plan(const quire_plan* plan, Operator op);

// ---- the operators ----

Status make_attention_operator(const quire_attention_desc& desc, quire_plan* plan);
Status prepare_attention(const quire_plan& plan, const quire_attention_args& args, Run* run);

Status make_append_operator(const quire_append_desc& desc, quire_plan* plan);
Status prepare_append(const quire_plan& plan, const quire_append_args& args, Run* run);

Status make_rotate_operator(const quire_rotate_desc& desc, quire_plan* plan);
Status prepare_rotate(const quire_plan& plan, const quire_rotate_args& args, Run* run);
Status fill_rotary_tables(double theta_base, const quire_tensor* cos, const quire_tensor* sin);

Status make_pmx_dynamic_multi_head_cache_attention(
    const quire_pmx_dynamic_multi_head_cache_attention_desc& desc, quire_plan* plan);
Status prepare_pmx_dynamic_multi_head_cache_attention(
    const quire_plan& plan, const quire_pmx_dynamic_multi_head_cache_attention_args& args, Run* run);
Status make_pmx_dynamic_multi_head_attention(const quire_pmx_dynamic_multi_head_attention_desc& desc,
                                             quire_plan* plan);
Status prepare_pmx_dynamic_multi_head_attention(const quire_plan& plan,
                                                const quire_pmx_dynamic_multi_head_attention_args& args,
                                                Run* run);
Status make_pmx_dynamic_key_value_cache(const quire_pmx_dynamic_key_value_cache_desc& desc, quire_plan* plan);
Status prepare_pmx_dynamic_key_value_cache(const quire_plan& plan,
                                           const quire_pmx_dynamic_key_value_cache_args& args, Run* run);
Status make_pmx_multi_head_cache_attention(const quire_pmx_multi_head_cache_attention_desc& desc,
                                           quire_plan* plan);
Status prepare_pmx_multi_head_cache_attention(const quire_plan& plan,
                                              const quire_pmx_multi_head_cache_attention_args& args,
                                              Run* run);
Status make_pmx_multi_head_attention(const quire_pmx_multi_head_attention_desc& desc, quire_plan* plan);
Status prepare_pmx_multi_head_attention(const quire_plan& plan,
                                        const quire_pmx_multi_head_attention_args& args, Run* run);
Status make_pmx_key_value_cache(const quire_pmx_key_value_cache_desc& desc, quire_plan* plan);
Status prepare_pmx_key_value_cache(const quire_plan& plan, const quire_pmx_key_value_cache_args& args,
                                   Run* run);

Status make_directml(const quire_directml_multihead_attention1_desc& desc, quire_plan* plan);
Status prepare_directml(const quire_plan& plan, const quire_directml_multihead_attention1_args& args,
                        Run* run);

Status make_mindspore(const quire_mindspore_multi_head_attention_desc& desc, quire_plan* plan);
Status prepare_mindspore(const quire_plan& plan, const quire_mindspore_multi_head_attention_args& args,
                         Run* run);

Status repack(const quire_repack_args& args);
Status merge_states(const quire_tensor* output_a, const quire_tensor* lse_a, const quire_tensor* output_b,
                    const quire_tensor* lse_b, const quire_tensor* output, const quire_tensor* lse);

}  // namespace quire
