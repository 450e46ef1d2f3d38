#include "problem.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "gather.h"
#include "types.h"

namespace quire_ggml {
namespace {

#define QUIRE_NEEDS(condition, text)  \
    if (!(condition)) return Reason { \
            text                      \
        }

float float_param(const Tensor& t, int i) {
    float x;
    std::memcpy(&x, &t.op_params[i], sizeof x);
    return x;
}

// [ne3, ne1, ne2, ne0]: quire's order of batch, row, head, element. False where a stride is no number of
// whole elements or blocks.
bool view_of(const Tensor& t, const TypeInfo& info, quire_tensor* view) {
    *view = {};
    view->data = t.data;
    view->type = info.quire;
    view->rank = 4;
    const int order[3] = {3, 1, 2};
    for (int i = 0; i < 3; ++i) {
        if (t.nb[order[i]] % info.bytes != 0) return false;
        view->shape[i] = t.ne[order[i]];
        view->strides[i] = int64_t(t.nb[order[i]] / info.bytes) * info.elements;
    }
    view->shape[3] = t.ne[0];
    view->strides[3] = 1;
    return t.nb[0] == info.bytes && t.data != nullptr;
}

constexpr int32_t kPrecDefault = 0, kPrecF32 = 10;

Reason read_parameters(const Tensor& dst, Problem* p) {
    p->scale = float_param(dst, 0);
    p->max_bias = float_param(dst, 1);
    p->soft_cap = float_param(dst, 2);
    QUIRE_NEEDS(std::isfinite(p->scale) && p->scale != 0, "its scale is 0 or not finite");
    QUIRE_NEEDS(std::isfinite(p->soft_cap) && p->soft_cap >= 0, "its soft cap is negative or not finite");
    QUIRE_NEEDS(std::isfinite(p->max_bias), "its max_bias is not finite");
    QUIRE_NEEDS(dst.op_params[3] == kPrecDefault || dst.op_params[3] == kPrecF32, "its precision is unknown");
    return {};
}

// Lengths that broadcast in other ways than ggml's own graphs use are ggml's to compute.
Reason read_mask(const Tensor& mask, Problem* p) {
    QUIRE_NEEDS(mask.type == kF16, "the mask is not f16");
    QUIRE_NEEDS(view_of(mask, *type_info(kF16), &p->mask), "the mask's strides");
    QUIRE_NEEDS(mask.ne[0] >= p->keys && mask.ne[1] >= p->tokens, "the mask is smaller than tokens x keys");
    QUIRE_NEEDS(mask.ne[2] == 1 || mask.ne[2] == p->heads, "the mask's heads");
    QUIRE_NEEDS(mask.ne[3] == 1 || mask.ne[3] == p->streams, "the mask's streams");
    // [streams, heads, tokens, keys]
    quire_tensor& m = p->mask;
    m.shape[1] = mask.ne[2], m.shape[2] = mask.ne[1];
    m.strides[1] = int64_t(mask.nb[2] / 2), m.strides[2] = int64_t(mask.nb[1] / 2);
    m.shape[3] = p->keys;  // one key must not become a length that broadcasts
    p->has_mask = true;
    return {};
}

Reason read_sinks(const Tensor& sinks, Problem* p) {
    QUIRE_NEEDS(sinks.type == kF32 && sinks.nb[0] == 4 && sinks.ne[0] == p->heads && sinks.data != nullptr,
                "the sinks are not f32, one a head");
    const int64_t heads = p->heads;
    p->sinks = quire_tensor_of(sinks.data, QUIRE_F32, 1, &heads);
    p->has_sinks = true;
    return {};
}

// Rows are written where ggml writes them, which only nb[1] says.
Reason read_output(const Tensor& dst, Problem* p) {
    QUIRE_NEEDS(dst.type == kF32 && dst.nb[0] == 4 && dst.data != nullptr, "the result is not f32");
    QUIRE_NEEDS(dst.ne[0] == p->value_head_dim && dst.ne[1] == p->heads && dst.ne[2] == p->tokens &&
                    dst.ne[3] == p->streams,
                "the result's shape");
    QUIRE_NEEDS(dst.nb[1] % 4 == 0, "the result's strides");
    const int64_t row = int64_t(dst.nb[1] / 4);
    p->output = {};
    p->output.data = dst.data;
    p->output.type = QUIRE_F32;
    p->output.rank = 4;
    const int64_t shape[4] = {p->streams, p->tokens, p->heads, p->value_head_dim};
    const int64_t strides[4] = {p->tokens * p->heads * row, p->heads * row, row, 1};
    std::memcpy(p->output.shape, shape, sizeof shape);
    std::memcpy(p->output.strides, strides, sizeof strides);
    return {};
}

}  // namespace

Reason read_problem(const Tensor& dst, Problem* p) {
    *p = {};
    const Tensor *q = dst.src[0], *k = dst.src[1], *v = dst.src[2];
    QUIRE_NEEDS(q != nullptr && k != nullptr && v != nullptr, "an operand is missing");
    for (int i = 5; i < kMaxSources; ++i)
        QUIRE_NEEDS(dst.src[i] == nullptr, "it has operands that quire does not know");
    const TypeInfo *key = type_info(k->type), *value = type_info(v->type);
    QUIRE_NEEDS(q->type == kF32, "the query is not f32");
    QUIRE_NEEDS(key != nullptr, "the type of the keys");
    QUIRE_NEEDS(value != nullptr, "the type of the values");
    QUIRE_NEEDS(view_of(*q, *type_info(kF32), &p->query), "the query's strides");
    QUIRE_NEEDS(view_of(*k, *key, &p->key), "the keys' strides");
    QUIRE_NEEDS(view_of(*v, *value, &p->value), "the values' strides");
    p->key_type = k->type, p->value_type = v->type;
    p->tokens = q->ne[1], p->streams = q->ne[3], p->keys = k->ne[1];
    QUIRE_NEEDS(p->tokens > 0 && p->streams > 0 && p->keys > 0, "it is empty");
    QUIRE_NEEDS(k->ne[0] == q->ne[0] && v->ne[1] == k->ne[1] && v->ne[2] == k->ne[2] &&
                    k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3],
                "shapes that do not fit each other");
    QUIRE_NEEDS(k->ne[0] <= 1024 && v->ne[0] <= 1024, "a head size above 1024");
    QUIRE_NEEDS(k->ne[2] > 0 && q->ne[2] % k->ne[2] == 0 && q->ne[2] <= 1 << 16, "the number of heads");
    p->heads = int32_t(q->ne[2]), p->kv_heads = int32_t(k->ne[2]);
    p->head_dim = int32_t(k->ne[0]), p->value_head_dim = int32_t(v->ne[0]);
    if (const Reason reason = read_parameters(dst, p)) return reason;
    if (dst.src[3] != nullptr)
        if (const Reason reason = read_mask(*dst.src[3], p)) return reason;
    QUIRE_NEEDS(p->has_mask || p->max_bias <= 0, "slopes without a mask");
    if (dst.src[4] != nullptr)
        if (const Reason reason = read_sinks(*dst.src[4], p)) return reason;
    return read_output(dst, p);
}

// ---- plans ----

namespace {

struct Key {
    int32_t key_type, value_type, heads, kv_heads, head_dim, value_head_dim;
    float scale, max_bias, soft_cap;
    int32_t page_size;  // 1: cells are gathered
};

struct Plan {
    Key key;
    quire_plan* plan;  // null: `reason` says why
    Reason reason;
    std::vector<float> slopes;  // [H]; empty: none
};

// Slopes of the heads as ggml has them.
std::vector<float> slopes_of(int heads, float max_bias) {
    int power = 1;
    while (power * 2 <= heads) power *= 2;
    const float m0 = std::pow(2.0f, -max_bias / float(power)),
                m1 = std::pow(2.0f, -(max_bias / 2.0f) / float(power));
    std::vector<float> slopes;
    for (int h = 0; h < heads; ++h)
        slopes.push_back(h < power ? std::pow(m0, float(h + 1)) : std::pow(m1, float(2 * (h - power) + 1)));
    return slopes;
}

// quire's own words are kept for the life of the process: a few plans, each once.
Reason quire_reason() { return {strdup(quire_last_error())}; }

struct OwnContext {
    quire_context* context = nullptr;
    Reason failure;
    OwnContext() {
        quire_context_options options = {};
        options.struct_size = sizeof options;
        options.num_threads = 1;  // all work is done in ggml's threads
        options.quiet = 1;        // QUIRE_VERBOSE is about the whole of the calls here
        if (quire_context_create(&options, &context) != QUIRE_OK) failure = quire_reason();
    }
};
OwnContext& own_context() {
    static OwnContext& context = *new OwnContext;  // calls may come while a process ends
    return context;
}

// For keys in blocks ggml rounds the query to 8 bits. Others it may compute in float32.
quire_precision precision_for(int32_t key_type) {
    return type_info(key_type)->elements == 1 ? QUIRE_PRECISION_HIGHEST : QUIRE_PRECISION_HIGH;
}

std::unique_ptr<Plan> make_plan(const Key& key) {
    auto made = std::make_unique<Plan>(Plan{key, nullptr, {}, {}});
    quire_attention_desc desc;
    quire_attention_desc_init(&desc);
    desc.num_heads = key.heads;
    desc.num_kv_heads = key.kv_heads;
    desc.head_dim = key.head_dim;
    desc.value_head_dim = key.value_head_dim;
    desc.key_format = {type_info(key.key_type)->quire, 0, QUIRE_NONE};
    desc.value_format = {type_info(key.value_type)->quire, 0, QUIRE_NONE};
    desc.scale = key.scale;
    desc.logits_soft_cap = key.soft_cap;
    desc.page_size = key.page_size;
    desc.precision = precision_for(key.key_type);
    if (quire_attention_plan(own_context().context, &desc, &made->plan) != QUIRE_OK)
        made->reason = quire_reason();
    if (key.max_bias > 0) made->slopes = slopes_of(key.heads, key.max_bias);
    return made;
}

// A model has a few: one for each kind of layer.
const Plan& plan_for(const Problem& p, bool gathered) {
    static std::mutex& mutex = *new std::mutex;
    static auto& plans = *new std::vector<std::unique_ptr<Plan>>;
    Key key = {p.key_type,       p.value_type, p.heads,    p.kv_heads, p.head_dim,
               p.value_head_dim, p.scale,      p.max_bias, p.soft_cap, gathered};
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& plan : plans)
        if (std::memcmp(&plan->key, &key, sizeof key) == 0) return *plan;
    plans.push_back(make_plan(key));
    return *plans.back();
}

}  // namespace

Reason context_failure() { return own_context().failure; }

namespace {

// [rows, heads, elements] of the one stream.
quire_tensor without_streams(const quire_tensor& t) {
    quire_tensor rows = t;
    rows.rank = 3;
    for (int i = 0; i < 3; ++i) rows.shape[i] = t.shape[i + 1], rows.strides[i] = t.strides[i + 1];
    return rows;
}

quire_tensor indices(std::vector<int64_t>& numbers) {
    const int64_t length = int64_t(numbers.size());
    return quire_tensor_of(numbers.data(), QUIRE_INT64, 1, &length);
}

// Every token a sequence, every cell a page.
quire_status prepare_gathered(const Problem& p, const Plan& plan, Gather* gather, quire_run** run) {
    const quire_tensor query = without_streams(p.query), key = without_streams(p.key),
                       value = without_streams(p.value), output = without_streams(p.output),
                       queries = indices(gather->queries), keys = indices(gather->keys);
    const int64_t shape[2] = {p.tokens, gather->most};
    const quire_tensor cells = quire_tensor_of(gather->cells.data(), QUIRE_INT64, 2, shape);
    quire_attention_args args = {};
    args.struct_size = sizeof args;
    args.query = &query;
    args.key = &key;
    args.value = &value;
    args.output = &output;
    args.seqstarts = &queries;
    args.kvstarts = &keys;
    args.cachestarts = &cells;
    if (p.has_sinks) args.sinks = &p.sinks;
    return quire_prepare_attention(plan.plan, &args, run);
}

}  // namespace

quire_run* prepare(const Problem& p, Gather* memory, Reason* reason) {
    const bool gathered = gather_cells(p, memory);
    const Plan& plan = plan_for(p, gathered);
    if ((*reason = plan.reason)) return nullptr;
    quire_run* run = nullptr;
    if (gathered) {
        if (prepare_gathered(p, plan, memory, &run) == QUIRE_OK) return run;
        *reason = {"quire refused the call"};
        return nullptr;
    }
    quire_tensor slopes;
    quire_attention_args args = {};
    args.struct_size = sizeof args;
    args.query = &p.query;
    args.key = &p.key;
    args.value = &p.value;
    args.output = &p.output;
    if (p.has_mask) args.attn_mask = &p.mask;
    if (p.has_sinks) args.sinks = &p.sinks;
    if (!plan.slopes.empty()) {
        const int64_t heads = p.heads;
        slopes = quire_tensor_of(const_cast<float*>(plan.slopes.data()), QUIRE_F32, 1, &heads);
        args.attn_mask_slopes = &slopes;
    }
    if (quire_prepare_attention(plan.plan, &args, &run) == QUIRE_OK) return run;
    *reason = {"quire refused the call"};
    return nullptr;
}

}  // namespace quire_ggml
