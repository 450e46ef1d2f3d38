// extern "C": the library, and the general operators.
#include "src/api_calls.h"
#include "src/cache_memory.h"

using namespace quire;

#define QUIRE_STRING_(x) #x
#define QUIRE_STRING(x) QUIRE_STRING_(x)

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

int64_t quire_block_bytes(quire_format format, int32_t head_dim) {
    const Status status = check_format("format", format, head_dim);
    return status.ok() && head_dim > 0 ? block_bytes(format, head_dim) : 0;
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

quire_status quire_repack(const quire_repack_args* args) {
    return guarded([&]() -> Status {
        quire_repack_args copy = {};
        QUIRE_TRY(copy_in("args", args, &copy));
        return repack(copy);
    });
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
