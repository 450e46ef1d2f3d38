// The general operators: quire_attention, quire_append, quire_merge_states.

#include "src/ops/operator.h"

namespace quire {

Status make_attention_operator(const quire_attention_desc& desc, quire_plan* plan) {
    AttentionSpec spec;
    QUIRE_TRY(check_attention_desc(desc, &spec));
    return plan_attention(spec, plan);
}

Status prepare_attention(const quire_plan& plan, const quire_attention_args& args, Run* run) {
    QUIRE_TRY(make_attention_problem(plan.attention.spec, args, &run->attention));
    run->start(plan.context, nullptr, &plan.attention);
    return {};
}

Status make_append_operator(const quire_append_desc& desc, quire_plan* plan) {
    AppendSpec spec;
    QUIRE_TRY(check_append_desc(desc, &spec));
    return plan_append("append", spec, plan);
}

Status prepare_append(const quire_plan& plan, const quire_append_args& args, Run* run) {
    QUIRE_TRY(make_append_problem(plan.append.spec, args, &run->append));
    run->start(plan.context, &plan.append, nullptr);
    return {};
}

namespace {

Status check_output(const char* name, const quire_tensor* t, quire_type type, const Shape& shape) {
    QUIRE_TRY(check_tensor(name, t, type, "[n, H, Dv]", shape));
    return check_contiguous(name, *t);
}

}  // namespace

Status merge_states(const quire_tensor* output_a, const quire_tensor* lse_a, const quire_tensor* output_b,
                    const quire_tensor* lse_b, const quire_tensor* output, const quire_tensor* lse) {
    if (output_a == nullptr) return invalid("output_a is NULL: must be a tensor [n, H, Dv]");
    const quire_type type = output_a->type;
    if (type != QUIRE_F32 && type != QUIRE_F16 && type != QUIRE_BF16)
        return invalid("output_a has type %s: must be f32, f16 or bf16", type_text(type).c_str());
    QUIRE_TRY(check_output("output_a", output_a, type, {kAny, kAny, kAny}));
    const int64_t n = output_a->shape[0], H = output_a->shape[1], Dv = output_a->shape[2];
    QUIRE_TRY(check_output("output_b", output_b, type, {n, H, Dv}));
    if (Dv > kMostHeadDim)
        return invalid("output_a has shape %s: Dv must be at most %d", shape_text(*output_a).c_str(),
                       kMostHeadDim);
    QUIRE_TRY(check_output("output", output, type, {n, H, Dv}));
    QUIRE_TRY(check_written("output", *output));
    QUIRE_TRY(check_tensor("lse_a", lse_a, QUIRE_F32, "[n, H]", {n, H}));
    QUIRE_TRY(check_tensor("lse_b", lse_b, QUIRE_F32, "[n, H]", {n, H}));
    if (lse != nullptr) {
        QUIRE_TRY(check_tensor("lse", lse, QUIRE_F32, "[n, H]", {n, H}));
        QUIRE_TRY(check_written("lse", *lse));
    }
    if (H == 0 || (Dv == 0 && lse == nullptr)) return {};  // nothing is written, whatever n
    // By views: where Dv is 0, the strides of the outputs mean nothing.
    const RowView rows_a = row_view(*output_a, false), rows_b = row_view(*output_b, false),
                  rows = row_view(*output, false), lses_a = row_view(*lse_a, false),
                  lses_b = row_view(*lse_b, false), lses = lse ? row_view(*lse, false) : RowView{};
    FloatEnvironment environment;
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t h = 0; h < H; ++h) {
            const float a = load_number(QUIRE_F32, lses_a.at(i, h), 0),
                        b = load_number(QUIRE_F32, lses_b.at(i, h), 0);
            float merged = 0;
            merge_rows(type, int(Dv), rows_a.at(i, h), a, rows_b.at(i, h), b, rows.at(i, h), &merged);
            if (lse != nullptr) store_number(QUIRE_F32, lses.at(i, h), 0, merged);
        }
    }
    return {};
}

}  // namespace quire
