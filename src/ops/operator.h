// What every operator file builds on: the plan behind quire_plan, and copying the caller's structs in.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "src/context.h"
#include "src/execute.h"

namespace quire {

enum class Operator { attention, append, pmx_dynamic_multi_head_cache_attention };

struct PmxCacheSpec {
    int num_layer, layer_idx, cache_layout, quant_group;
    quire_type query_type, cache_type, scale_type;  // scale_type NONE: not quantised
};

const char* operator_name(Operator op);

}  // namespace quire

struct quire_plan {
    quire::Operator op{};
    std::shared_ptr<quire::Context> context;
    quire::AttentionPlan attention;
    quire::AppendPlan append;
    quire::PmxCacheSpec pmx{};
    std::string explain;
};

struct quire_run {
    std::unique_ptr<quire::Run> run;
};

namespace quire {

// The caller's struct as this version knows it: a shorter one (of an older program) is filled up with zeros.
template <typename T>
Status copy_in(const char* name, const T* from, T* to) {
    if (from == nullptr) return invalid("%s is NULL: must point at a struct", name);
    if (sizeof(size_t) > from->struct_size || from->struct_size > 65536)
        return invalid("%s.struct_size is %zu: must be sizeof the struct, %zu", name, from->struct_size, sizeof(T));
    std::memset(static_cast<void*>(to), 0, sizeof(T));
    std::memcpy(static_cast<void*>(to), from, std::min(sizeof(T), from->struct_size));
    return {};
}

// Attention and append parts of a plan, each on the best target that takes it; says once, in the context's log,
// when that is not the context's.
Status plan_attention(const AttentionSpec& spec, quire_plan* plan);
Status plan_append(const AppendSpec& spec, quire_plan* plan);

Status check_plan(const quire_plan* plan, Operator op);

// ---- the operators ----

Status make_attention_operator(const quire_attention_desc& desc, quire_plan* plan);
Status prepare_attention(const quire_plan& plan, const quire_attention_args& args, Run* run);

Status make_append_operator(const quire_append_desc& desc, quire_plan* plan);
Status prepare_append(const quire_plan& plan, const quire_append_args& args, Run* run);

Status make_pmx_dynamic(const quire_pmx_dynamic_multi_head_cache_attention_desc& desc, quire_plan* plan);
Status prepare_pmx_dynamic(const quire_plan& plan, const quire_pmx_dynamic_multi_head_cache_attention_args& args,
                           Run* run);

Status merge_states(const quire_tensor* output_a, const quire_tensor* lse_a, const quire_tensor* output_b,
                    const quire_tensor* lse_b, const quire_tensor* output, const quire_tensor* lse);

}  // namespace quire
