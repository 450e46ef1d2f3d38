#include "src/ops/operator.h"

namespace quire {
namespace {

Status say_fallback(quire_plan* plan, const char* what, const Target& got) {
    if (&got != &plan->context->target)
        plan->context->say_once(std::string("quire: ") + what + " runs on " + got.name + ", not on " +
                                plan->context->target.name + ":\n" + plan->explain);
    return {};
}

}  // namespace

const char* operator_name(Operator op) {
    switch (op) {
        case Operator::attention: return "quire_attention";
        case Operator::append: return "quire_append";
        default: return "quire_pmx_dynamic_multi_head_cache_attention";
    }
}

Status plan_attention(const AttentionSpec& spec, quire_plan* plan) {
    Context& context = *plan->context;
    QUIRE_TRY(make_attention_plan(spec, context.target, context.code, &plan->attention, &plan->explain));
    return say_fallback(plan, "attention", *plan->attention.target);
}

Status plan_append(const AppendSpec& spec, quire_plan* plan) {
    Context& context = *plan->context;
    QUIRE_TRY(make_append_plan(spec, context.target, context.code, &plan->append, &plan->explain));
    return say_fallback(plan, "append", *plan->append.target);
}

Status check_plan(const quire_plan* plan, Operator op) {
    if (plan == nullptr) return invalid("plan is NULL: must be a plan of %s", operator_name(op));
    if (plan->op != op) return invalid("plan is one of %s: must be one of %s", operator_name(plan->op), operator_name(op));
    return {};
}

}  // namespace quire
