#include "src/ops/operator.h"

#include "src/attend.h"
#include "src/ops/kernel_names.h"

namespace quire {
namespace {

// One line, the same for all plans that decline for the same reason.
Status say_fallback(const quire_plan& plan, const Target& got) {
    const Target& wanted = plan.context->target;
    if (&got == &wanted) return {};
    const std::string declined = std::string(wanted.name) + " declined: ";
    const size_t at = plan.explain.rfind(declined), reason = at + declined.size();
    std::string text = std::string("quire: runs on ") + got.name + ", not on " + wanted.name;
    if (at != std::string::npos)
        text += ": " + plan.explain.substr(reason, plan.explain.find('\n', reason) - reason);
    plan.context->say_once(text);
    return {};
}

// "attention kernels: name name ..."
std::string line(const char* what, const KernelNames& names) {
    return names.text().empty() ? "" : std::string(what) + " kernels: " + names.text() + "\n";
}

std::string kernels_of(const AttentionPlan& plan) {
    KernelNames names;
    names.add(plan.query_numbers);
    for (const jit::DecodeKernels& k : plan.decode) names.add(k, true);
    names.add(plan.pack);
    names.add(plan.panel);
    names.add(plan.mask_rows);
    for (const jit::TileKernels& k : plan.tile) names.add(k);
    names.add(plan.few_pack);
    names.add(plan.few_panel, false);
    for (const jit::TileKernels& k : plan.few) names.add(k);
    names.add(plan.merge);
    names.add(plan.output_numbers);
    return line("attention", names);
}

std::string tiles_of(const AttentionPlan& plan) {
    if (!plan.target->jit()) return "";
    return "attention tiles: " + std::to_string(plan.tile_rows) + " query rows x " +
           std::to_string(plan.tile_keys) + " keys, panels of " + std::to_string(plan.panel_rows()) +
           " rows, " + std::to_string(scratch_floats(plan) * sizeof(float) / 1024) + " KiB a thread\n";
}

}  // namespace

const char* operator_name(Operator op) {
    switch (op) {
        case Operator::attention: return "quire_attention";
        case Operator::append: return "quire_append";
        case Operator::rotate: return "quire_rotate";
        case Operator::pmx_dynamic_multi_head_cache_attention:
            return "quire_pmx_dynamic_multi_head_cache_attention";
        case Operator::pmx_dynamic_multi_head_attention: return "quire_pmx_dynamic_multi_head_attention";
        case Operator::pmx_dynamic_key_value_cache: return "quire_pmx_dynamic_key_value_cache";
        case Operator::pmx_multi_head_cache_attention: return "quire_pmx_multi_head_cache_attention";
        case Operator::pmx_multi_head_attention: return "quire_pmx_multi_head_attention";
        case Operator::pmx_key_value_cache: return "quire_pmx_key_value_cache";
        case Operator::directml_multihead_attention1: return "quire_directml_multihead_attention1";
        case Operator::mindspore_multi_head_attention: return "quire_mindspore_multi_head_attention";
    }
    return "";
}

namespace {

// Of a stage that has a kernel for rows of keys and one for rows of values.
template <typename Stage>
Status explain_rows(const char* name, const Stage& stage, quire_plan* plan) {
    KernelNames names;
    names.add(stage);
    plan->explain += line(name, names);
    return say_fallback(*plan, *stage.target);
}

}  // namespace

Status plan_attention(const AttentionSpec& spec, quire_plan* plan) {
    Context& context = *plan->context;
    QUIRE_TRY(make_attention_plan(spec, context.target, context.code, &plan->attention, &plan->explain));
    plan->explain += kernels_of(plan->attention) + tiles_of(plan->attention);
    return say_fallback(*plan, *plan->attention.target);
}

Status plan_append(const char* name, const AppendSpec& spec, quire_plan* plan) {
    Context& context = *plan->context;
    QUIRE_TRY(make_append_plan(name, spec, context.target, context.code, &plan->append, &plan->explain));
    const auto rotation = [&](const char* side, const Rotation& r) {
        if (r) plan->explain += std::string(name) + " rotation of " + side + ": " + r.name().substr(1) + "\n";
    };
    rotation(spec.Dv == 0 ? "rows" : "keys", spec.key_rotation);
    rotation("values", spec.value_rotation);
    return explain_rows(name, plan->append, plan);
}

Status plan_read(const ReadSpec& spec, quire_plan* plan) {
    Context& context = *plan->context;
    QUIRE_TRY(make_read_plan(spec, context.target, context.code, &plan->read, &plan->explain));
    return explain_rows("read", plan->read, plan);
}

Status check_plan(const quire_plan* plan, Operator op) {
    if (plan == nullptr) return invalid("plan is NULL: must be a plan of %s", operator_name(op));
    if (plan->op != op)
        return invalid("plan is one of %s: must be one of %s", operator_name(plan->op), operator_name(op));
    return {};
}

}  // namespace quire
