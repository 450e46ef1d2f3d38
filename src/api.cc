// extern "C": copies in, catches, last error; no logic.
#include <cmath>
#include <exception>
#include <new>

#include "src/cache_memory.h"
#include "src/ops/explain.h"
#include "src/ops/verbose.h"

namespace quire {
namespace {

#define QUIRE_STRING_(x) #x
#define QUIRE_STRING(x) QUIRE_STRING_(x)

// Runs `body` and turns what it throws into a status; remembers the message. Neither bits nor MXCSR depend on
// the caller's rounding: plans compute too (scale, slopes).
template <typename Body>
quire_status guarded(const Body& body) noexcept {
    const FloatEnvironment environment;
    try {
        Status status = body();
        return status.ok() ? QUIRE_OK : report(status);
    } catch (const std::bad_alloc&) {
        return report(Status(QUIRE_OUT_OF_MEMORY, "out of memory"));
    } catch (const std::exception& error) {
        return report(Status(QUIRE_INTERNAL, error.what()));
    } catch (...) {
        return report(Status(QUIRE_INTERNAL, "unknown exception"));
    }
}

// A quire_run is a Run, so that preparing one allocates no handle.
Run* run_of(quire_run* run) { return reinterpret_cast<Run*>(run); }
const Run* run_of(const quire_run* run) { return reinterpret_cast<const Run*>(run); }

template <typename Args>
using Prepare = Status (*)(const quire_plan&, const Args&, Run*);

// On failure the run goes back to the context unused.
template <typename Args>
Status prepare_run(const quire_plan* plan, const Args* args, Operator op, Prepare<Args> prepare,
                   std::unique_ptr<Run>* out) {
    QUIRE_TRY(check_plan(plan, op));
    const bool verbose = plan->context->diagnostics.verbose > 0;
    const int64_t begin = verbose ? CallReport::now() : 0;
    Args copy;
    QUIRE_TRY(copy_in("args", args, &copy));
    std::unique_ptr<Run> run = plan->context->take_run();
    Status status = prepare(*plan, copy, run.get());
    if (!status.ok()) {
        plan->context->give_back(std::move(run));
        return status;
    }
    if (verbose) describe_call(*plan, begin, run.get());
    *out = std::move(run);
    return {};
}

void release(std::unique_ptr<Run> run) {
    if (run->report.wanted()) say_call(run.get());
    Run::release(std::move(run));
}

template <typename Args>
quire_status run_now(const quire_plan* plan, const Args* args, Operator op, Prepare<Args> prepare) {
    return guarded([&]() -> Status {
        std::unique_ptr<Run> run;
        QUIRE_TRY(prepare_run(plan, args, op, prepare, &run));
        {
            const CallReport::Timed timed(run->report);
            plan->context->executor->run(*run);
        }
        release(std::move(run));
        return {};
    });
}

template <typename Args>
quire_status prepare_only(const quire_plan* plan, const Args* args, Operator op, Prepare<Args> prepare,
                          quire_run** out) {
    return guarded([&]() -> Status {
        if (out == nullptr) return invalid("run is NULL: must point at a quire_run*");
        std::unique_ptr<Run> run;
        QUIRE_TRY(prepare_run(plan, args, op, prepare, &run));
        *out = reinterpret_cast<quire_run*>(run.release());
        return {};
    });
}

}  // namespace
}  // namespace quire

using namespace quire;

struct quire_context {
    std::shared_ptr<Context> context;
};

namespace quire {
namespace {

Status resolve(quire_context* handle, std::shared_ptr<Context>* context) {
    if (handle == nullptr) return default_context(context);
    *context = handle->context;
    return {};
}

template <typename Desc>
quire_status plan_for(quire_context* context, const Desc* desc, quire_plan** out, Operator op,
                      Status (*make)(const Desc&, quire_plan*)) {
    return guarded([&]() -> Status {
        if (out == nullptr) return invalid("plan is NULL: must point at a quire_plan*");
        Desc copy;
        QUIRE_TRY(copy_in("desc", desc, &copy));
        auto plan = std::make_unique<quire_plan>();
        plan->op = op;
        QUIRE_TRY(resolve(context, &plan->context));
        plan->explain = std::string("op: ") + operator_name(op) + "\n";
        QUIRE_TRY(make(copy, plan.get()));
        plan->explain_json = explain_as_json(plan->explain);
        if (plan->context->diagnostics.verbose > 1) say_plan(*plan);
        *out = plan.release();
        return {};
    });
}

}  // namespace
}  // namespace quire

const char* quire_version(void) {
    return QUIRE_STRING(QUIRE_VERSION_MAJOR) "." QUIRE_STRING(QUIRE_VERSION_MINOR) "." QUIRE_STRING(
        QUIRE_VERSION_PATCH);
}

const char* quire_last_error(void) { return last_error(); }

quire_tensor quire_tensor_of(void* data, quire_type type, int32_t rank, const int64_t* shape) {
    quire_tensor t = {};
    t.data = data;
    t.type = type;
    t.rank = rank;
    int64_t stride = 1;
    for (int32_t i = rank - 1; i >= 0; --i) {
        if (i >= QUIRE_MAX_RANK) continue;  // a wrong rank is reported where the tensor is used
        t.shape[i] = shape[i];
        t.strides[i] = stride;
        // A product that does not fit is reported where the tensor is used, by its shape.
        if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = INT64_MAX;
    }
    return t;
}

int64_t quire_bytes_of(quire_type type, int64_t elements) {
    const TypeSize size = type_size(type);
    int64_t bytes = 0;
    if (size.elements == 0 || elements < 0 || elements % size.elements != 0 ||
        __builtin_mul_overflow(elements / size.elements, size.bytes, &bytes))
        return 0;
    return bytes;
}

quire_status quire_context_create(const quire_context_options* options, quire_context** context) {
    return guarded([&]() -> Status {
        if (context == nullptr) return invalid("context is NULL: must point at a quire_context*");
        quire_context_options copy = {};
        if (options != nullptr) QUIRE_TRY(copy_in("options", options, &copy));
        auto handle = std::make_unique<quire_context>();
        QUIRE_TRY(make_context(&copy, &handle->context));
        *context = handle.release();
        return {};
    });
}

void quire_context_destroy(quire_context* context) { delete context; }

const char* quire_target_name(quire_context* context) {
    std::shared_ptr<Context> held;
    const quire_status status = guarded([&] { return resolve(context, &held); });
    return status == QUIRE_OK ? held->target.name : nullptr;
}

int32_t quire_num_threads(quire_context* context) {
    std::shared_ptr<Context> held;
    const quire_status status = guarded([&] { return resolve(context, &held); });
    return status == QUIRE_OK ? held->num_threads : 0;
}

void quire_plan_destroy(quire_plan* plan) { delete plan; }
const char* quire_plan_explain(const quire_plan* plan) {
    return plan == nullptr ? "" : plan->explain.c_str();
}

const char* quire_plan_explain_json(const quire_plan* plan) {
    return plan == nullptr ? "" : plan->explain_json.c_str();
}

quire_status quire_run_predict(const quire_run* run, const quire_limits* limits,
                               quire_prediction* prediction) {
    return guarded([&]() -> Status {
        if (run == nullptr) return invalid("run is NULL: must be a prepared run");
        return predict_run(*run_of(run), limits, prediction);
    });
}

quire_status quire_run_slice(quire_run* run, int32_t index, int32_t count, quire_barrier_fn barrier,
                             void* barrier_user) {
    return guarded([&]() -> Status {
        if (run == nullptr) return invalid("run is NULL: must be a prepared run");
        const CallReport::Timed timed(run_of(run)->report);
        return run_slice(*run_of(run), index, count, barrier, barrier_user);
    });
}

void quire_run_release(quire_run* run) {
    if (run == nullptr) return;
    release(std::unique_ptr<Run>(run_of(run)));
}

void quire_attention_desc_init(quire_attention_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->type = QUIRE_F32;
    desc->key_format = desc->value_format = {QUIRE_F32, 0, QUIRE_NONE};
}

quire_status quire_attention_plan(quire_context* context, const quire_attention_desc* desc,
                                  quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::attention, make_attention_operator);
}

quire_status quire_attention(const quire_plan* plan, const quire_attention_args* args) {
    return run_now(plan, args, Operator::attention, prepare_attention);
}

quire_status quire_prepare_attention(const quire_plan* plan, const quire_attention_args* args,
                                     quire_run** run) {
    return prepare_only(plan, args, Operator::attention, prepare_attention, run);
}

void quire_append_desc_init(quire_append_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->type = QUIRE_F32;
    desc->key_format = desc->value_format = {QUIRE_F32, 0, QUIRE_NONE};
}

quire_status quire_append_plan(quire_context* context, const quire_append_desc* desc, quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::append, make_append_operator);
}

quire_status quire_append(const quire_plan* plan, const quire_append_args* args) {
    return run_now(plan, args, Operator::append, prepare_append);
}

quire_status quire_prepare_append(const quire_plan* plan, const quire_append_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::append, prepare_append, run);
}

void quire_rotate_desc_init(quire_rotate_desc* desc) {
    *desc = {};
    desc->struct_size = sizeof *desc;
    desc->type = QUIRE_F32;
}

quire_status quire_rotate_plan(quire_context* context, const quire_rotate_desc* desc, quire_plan** plan) {
    return plan_for(context, desc, plan, Operator::rotate, make_rotate_operator);
}

quire_status quire_rotate(const quire_plan* plan, const quire_rotate_args* args) {
    return run_now(plan, args, Operator::rotate, prepare_rotate);
}

quire_status quire_prepare_rotate(const quire_plan* plan, const quire_rotate_args* args, quire_run** run) {
    return prepare_only(plan, args, Operator::rotate, prepare_rotate, run);
}

quire_status quire_rotary_tables(double theta_base, const quire_tensor* cos, const quire_tensor* sin) {
    return guarded([&] { return fill_rotary_tables(theta_base, cos, sin); });
}

quire_status quire_cache_alloc(size_t bytes, void** memory) {
    return guarded([&] { return allocate_cache_memory(bytes, memory); });
}

quire_status quire_cache_free(void* memory, size_t bytes) {
    return guarded([&] { return free_cache_memory(memory, bytes); });
}

quire_status quire_merge_states(quire_context* context, const quire_tensor* output_a,
                                const quire_tensor* lse_a, const quire_tensor* output_b,
                                const quire_tensor* lse_b, const quire_tensor* output,
                                const quire_tensor* lse) {
    (void)context;
    return guarded([&] { return merge_states(output_a, lse_a, output_b, lse_b, output, lse); });
}

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
