// DML_MULTIHEAD_ATTENTION1: its attributes and tensors -> the copies and the attention problem of the common
// path.
#include "src/ops/directml.h"
#include "src/ops/workspace.h"

#include <cmath>

namespace quire {
namespace {

using namespace directml;
using Desc = quire_directml_multihead_attention1_desc;

size_t bytes_of_rows(quire_type type, int64_t B, int64_t tokens, int heads, int size) {
    return size_t(bytes_of(type, B * tokens * heads * size));
}

// [B, tokens, heads, size], each head's rows next to each other.
quire_tensor dense(char* data, quire_type type, int64_t B, int64_t tokens, int heads, int size) {
    quire_tensor t = {};
    t.data = data;
    t.type = type;
    t.rank = 4;
    const int64_t shape[] = {B, tokens, heads, size},
                  strides[] = {heads * tokens * size, size, tokens * size, 1};
    std::copy(shape, shape + 4, t.shape);
    std::copy(strides, strides + 4, t.strides);
    return t;
}

// ---- copies ----

RowCopy copy_of(const quire_tensor* from, const quire_tensor& to, int64_t tokens) {
    RowCopy copy;
    copy.B = to.shape[0];
    copy.rows = tokens;
    copy.heads = int(to.shape[2]);
    copy.dim = int(to.shape[3]);
    copy.type = to.type;
    if (from) copy.from = row_view(*from, true);
    copy.to = row_view(to, true);
    return copy;
}

// Past and new rows, as they follow each other in `to` [B, T, heads, size].
void add_joining_copies(const Tensors& t, const Lengths& lengths, const quire_tensor& past,
                        const quire_tensor& added, const char* bias, const quire_tensor& to,
                        bool clear_unused, std::vector<RowCopy>* copies) {
    if (t.past > 0) {
        RowCopy copy = copy_of(&past, to, t.past);
        if (lengths.past) copy.counts = {lengths.past, 1, 0};
        copies->push_back(copy);
    }
    if (t.added > 0) {
        RowCopy copy = copy_of(&added, to, t.added);
        copy.bias = bias;
        if (lengths.past)
            copy.begin = {lengths.past, 1, 0};
        else
            copy.to.base += t.past * copy.to.row_stride;
        copies->push_back(copy);
    }
    if (lengths.past && t.past > 0 && clear_unused) {
        RowCopy copy = copy_of(nullptr, to, t.past);
        copy.begin = {lengths.end, 1, 0};
        copy.counts = {lengths.unused, 1, 0};
        copies->push_back(copy);
    }
}

// The keys (or values) to attend to. They are the caller's own where nothing is added to them; else they are
// joined in the present, or where that is not wanted in `memory`.
quire_tensor keys_of(const Tensors& t, const Lengths& lengths, const quire_tensor& past,
                     const quire_tensor& added, const char* bias, const quire_tensor& present, char* memory,
                     std::vector<RowCopy>* copies) {
    const bool as_given = !given(added) || (!given(past) && !bias);
    if (given(present)) add_joining_copies(t, lengths, past, added, bias, present, true, copies);
    if (as_given) return given(added) ? added : past;
    if (given(present)) return present;
    const quire_tensor& like = added;
    quire_tensor joined = dense(memory, like.type, t.B, t.T(), int(like.shape[2]), int(like.shape[3]));
    add_joining_copies(t, lengths, past, added, bias, joined, false, copies);
    return joined;
}

}  // namespace

Status make_directml(const Desc& desc, quire_plan* plan) {
    constexpr int kMost = 1 << 20;
    QUIRE_TRY(check_range("query_head_count", desc.query_head_count, 1, kMost));
    QUIRE_TRY(check_range("key_value_head_count", desc.key_value_head_count, 0, kMost));
    if (desc.key_value_head_count != 0 && desc.query_head_count % desc.key_value_head_count != 0)
        return invalid("key_value_head_count is %d: must divide query_head_count, %d",
                       desc.key_value_head_count, desc.query_head_count);
    QUIRE_TRY(check_range("head_size", desc.head_size, 1, kMostHeadDim));
    QUIRE_TRY(check_range("value_head_size", desc.value_head_size, 0, kMostHeadDim));
    if (desc.data_type != QUIRE_F32 && desc.data_type != QUIRE_F16)
        return invalid("data_type is %s: must be f32 or f16", type_text(desc.data_type).c_str());
    QUIRE_TRY(
        check_range("mask_type", desc.mask_type, QUIRE_DIRECTML_MASK_NONE, QUIRE_DIRECTML_MASK_BOOLEAN));
    if (!std::isfinite(desc.scale)) return invalid("scale is %g: must be finite", double(desc.scale));
    if (!(desc.mask_filter_value < INFINITY))
        return invalid("mask_filter_value is %g: must be finite or -Inf", double(desc.mask_filter_value));
    quire_attention_desc attention = {};
    attention.num_heads = desc.query_head_count;
    attention.num_kv_heads = desc.key_value_head_count;
    attention.head_dim = desc.head_size;
    attention.value_head_dim = desc.value_head_size;
    attention.type = desc.data_type;
    attention.key_format = attention.value_format = {desc.data_type, 0, QUIRE_NONE};
    attention.precision = desc.precision;
    AttentionSpec spec;
    QUIRE_TRY(check_attention_desc(attention, &spec));
    spec.scale = desc.scale;
    plan->directml = {desc.mask_type, desc.mask_filter_value};
    return plan_attention(spec, plan);
}

Status prepare_directml(const quire_plan& plan, const Args& args, Run* run) {
    const AttentionSpec& spec = plan.attention.spec;
    Tensors t;
    QUIRE_TRY(check_tensors(spec, args, &t));
    const bool joined = given(t.key) && (given(t.past_key) || t.bias);
    const size_t integers = size_t(t.B) * sizeof(int64_t);
    const size_t query_bytes = t.bias ? bytes_of_rows(spec.type, t.B, t.S, spec.H, spec.D) : 0;
    const size_t key_bytes =
        joined && !given(t.present_key) ? bytes_of_rows(spec.type, t.B, t.T(), spec.Hk, spec.D) : 0;
    const size_t value_bytes =
        joined && !given(t.present_value) ? bytes_of_rows(spec.type, t.B, t.T(), spec.Hk, spec.Dv) : 0;
    Workspace workspace(&run->workspace, up_to_64(Lengths::kArrays * integers) + up_to_64(query_bytes) +
                                             up_to_64(key_bytes) + value_bytes);
    auto* memory = reinterpret_cast<int64_t*>(workspace.take(Lengths::kArrays * integers));
    Lengths lengths;
    QUIRE_TRY(check_past_lengths(spec, args, t, memory, &lengths));

    const int64_t key_bias = int64_t(spec.H) * spec.D, value_bias = key_bias + int64_t(spec.Hk) * spec.D;
    const auto bias_at = [&](int64_t i) { return t.bias ? t.bias + bytes_of(spec.type, i) : nullptr; };
    quire_tensor query = t.query;
    if (t.bias) {
        query = dense(workspace.take(query_bytes), spec.type, t.B, t.S, spec.H, spec.D);
        RowCopy copy = copy_of(&t.query, query, t.S);
        copy.bias = bias_at(0);
        run->copies.push_back(copy);
    }
    const quire_tensor key = keys_of(t, lengths, t.past_key, t.key, bias_at(key_bias), t.present_key,
                                     workspace.take(key_bytes), &run->copies);
    const quire_tensor value = keys_of(t, lengths, t.past_value, t.value, bias_at(value_bias),
                                       t.present_value, workspace.take(value_bytes), &run->copies);

    quire_attention_args attention = {};
    attention.query = &query;
    attention.key = &key;
    attention.value = &value;
    attention.output = &t.output;
    QUIRE_TRY(make_attention_problem(spec, attention, &run->attention));
    if (lengths.end) run->attention.key_end = {lengths.end, 1, 0};
    QUIRE_TRY(check_terms(plan.directml, spec, args, t, memory + 3 * t.B, &lengths, &run->attention));
    run->start(plan.context, nullptr, &plan.attention);
    return {};
}

}  // namespace quire
