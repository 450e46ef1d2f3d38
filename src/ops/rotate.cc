// quire_rotate: rows of an input, rotated, are the rows that append would store, in the output's type. And
// tables of angles.
#include <cmath>

#include "src/ops/operator.h"

namespace quire {
namespace {

// Views of input and output; either form of it.
Status check_rotated(const quire_rotate_args& args, AppendProblem* p) {
    const AppendSpec& spec = *p->spec;
    p->batched = p->cache.batched = args.input != nullptr && args.input->rank == 4;
    const char* letters = p->batched ? "[B, S, H, D]" : "[n, H, D]";
    Shape shape = p->batched ? Shape{kAny, kAny, spec.Hk, spec.D} : Shape{kAny, spec.Hk, spec.D};
    QUIRE_TRY(check_rows("input", args.input, spec.type, letters, shape, &p->new_key));
    const int64_t* lengths = args.input->shape;
    p->B = p->batched ? lengths[0] : 1;
    QUIRE_TRY(check_batch("input", p->B));
    p->queries_at.uniform = lengths[p->batched ? 1 : 0];
    p->n = p->B * p->queries_at.uniform;
    for (int i = 0; i < shape.rank(); ++i) shape[i] = lengths[i];
    QUIRE_TRY(check_rows("output", args.output, spec.type, letters, shape, &p->cache.key));
    return check_written("output", *args.output);
}

}  // namespace

Status make_rotate_operator(const quire_rotate_desc& desc, quire_plan* plan) {
    AppendSpec spec;
    QUIRE_TRY(check_rotate_desc(desc, &spec));
    return plan_append("rotate", spec, plan);
}

Status prepare_rotate(const quire_plan& plan, const quire_rotate_args& args, Run* run) {
    AppendProblem& p = run->append = AppendProblem();
    p.spec = &plan.append.spec;
    QUIRE_TRY(check_rotated(args, &p));
    const bool rotary = p.spec->key_rotation.rotary != QUIRE_ROTARY_NONE;
    if (rotary && args.positions == nullptr)
        return invalid("positions is NULL: must be a tensor %s", p.batched ? "[B, S]" : "[n]");
    QUIRE_TRY(check_rotary({args.positions, args.rotary_cos, args.rotary_sin}, &p));
    run->start(plan.context, &plan.append, nullptr);
    return {};
}

Status fill_rotary_tables(double theta_base, const quire_tensor* cos, const quire_tensor* sin) {
    if (!(theta_base > 0) || std::isinf(theta_base))
        return invalid("theta_base is %g: must be above 0 and finite", theta_base);
    QUIRE_TRY(check_tensor("cos", cos, QUIRE_F32, "[MaxPos, R / 2]", {kAny, kAny}));
    QUIRE_TRY(check_tensor("sin", sin, QUIRE_F32, "[MaxPos, R / 2]", {cos->shape[0], cos->shape[1]}));
    QUIRE_TRY(check_written("cos", *cos));
    QUIRE_TRY(check_written("sin", *sin));
    const int64_t half = cos->shape[1];
    for (int64_t i = 0; i < half; ++i) {
        const double frequency = std::pow(theta_base, -double(i) / double(half));
        for (int64_t t = 0; t < cos->shape[0]; ++t) {
            const double angle = double(t) * frequency;
            store_number(QUIRE_F32, cos->data, t * cos->strides[0] + i * cos->strides[1],
                         float(std::cos(angle)));
            store_number(QUIRE_F32, sin->data, t * sin->strides[0] + i * sin->strides[1],
                         float(std::sin(angle)));
        }
    }
    return {};
}

}  // namespace quire
