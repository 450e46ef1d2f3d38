// mindspore.nn.transformer.MultiHeadAttention: checks of a call's tensors.
#include "src/ops/mindspore.h"

namespace quire::mindspore {
namespace {

Status check_number_type(const char* name, const quire_tensor& tensor) {
    if (tensor.type == QUIRE_F32 || tensor.type == QUIRE_F16) return {};
    return invalid("%s has type %s: must be f32 or f16", name, type_text(tensor.type).c_str());
}

// [B, tokens, hidden_size] or [B * tokens, hidden_size], of `type` or (QUIRE_NONE) of either.
Status read_rows(const char* name, const quire_tensor* tensor, quire_type type, int64_t B, int64_t tokens,
                 int64_t hidden, ProjectedRows* rows) {
    if (tensor == nullptr)
        return invalid("%s is NULL: must be a tensor [%lld, %lld, %lld] or [%lld, %lld]", name, (long long)B,
                       (long long)tokens, (long long)hidden, (long long)(B * tokens), (long long)hidden);
    if (type == QUIRE_NONE) QUIRE_TRY(check_number_type(name, *tensor));
    if (tensor->rank != 2 && tensor->rank != 3)
        return invalid("%s has rank %d: must be 2 or 3", name, tensor->rank);
    const bool flat = tensor->rank == 2;
    const quire_type wanted = type == QUIRE_NONE ? tensor->type : type;
    QUIRE_TRY(check_tensor(name, tensor, wanted,
                           flat ? "[B * tokens, hidden_size]" : "[B, tokens, hidden_size]",
                           flat ? Shape{B * tokens, hidden} : Shape{B, tokens, hidden}));
    QUIRE_TRY(check_contiguous(name, *tensor));
    const auto stride = [&](int i) {
        return tensor->shape[i] > 1 ? bytes_of(tensor->type, tensor->strides[i]) : 0;
    };
    *rows = {static_cast<char*>(tensor->data), tensor->type, flat ? B * tokens : tokens, flat ? 0 : stride(0),
             stride(flat ? 0 : 1)};
    return {};
}

Status read_mask(const MindsporeSpec& layer, const AttentionSpec& spec, const Args& args, Tensors* t) {
    const char* name = "attention_mask";
    t->mask = args.attention_mask;
    if (t->mask == nullptr) return {};
    QUIRE_TRY(check_number_type(name, *t->mask));
    if (t->mask->rank == 3)
        return check_tensor(name, t->mask, t->mask->type, "[B, S, T]", {layer.B, t->S, layer.T});
    if (t->mask->rank != 4) return invalid("%s has rank %d: must be 3 or 4", name, t->mask->rank);
    QUIRE_TRY(
        check_tensor(name, t->mask, t->mask->type, "[B, H or 1, S, T]", {layer.B, kAny, t->S, layer.T}));
    if (t->mask->shape[1] != 1 && t->mask->shape[1] != spec.H)
        return invalid("%s has shape %s: dimension 1 of [B, H or 1, S, T] must be %d or 1", name,
                       shape_text(*t->mask).c_str(), spec.H);
    return {};
}

Status check_no_past(const Args& args) {
    const std::pair<const char*, const quire_tensor*> tensors[] = {
        {"key_past", args.key_past},
        {"value_past", args.value_past},
        {"batch_valid_length", args.batch_valid_length}};
    for (const auto& [name, tensor] : tensors)
        if (tensor != nullptr) return invalid("%s is given: must be NULL where use_past is 0", name);
    return {};
}

Status read_past(const MindsporeSpec& layer, const AttentionSpec& spec, const Args& args, Tensors* t) {
    if (!layer.use_past) return check_no_past(args);
    if (t->incremental || args.key_past != nullptr)
        QUIRE_TRY(check_tensor("key_past", args.key_past, QUIRE_F16, "[B, H, D, T]",
                               {layer.B, spec.H, spec.D, layer.T}));
    if (t->incremental || args.value_past != nullptr)
        QUIRE_TRY(check_tensor("value_past", args.value_past, QUIRE_F16, "[B, H, T, D]",
                               {layer.B, spec.H, layer.T, spec.D}));
    QUIRE_TRY(check_tensor("batch_valid_length", args.batch_valid_length, QUIRE_INT32, "[B]", {layer.B}));
    t->key_past = args.key_past;
    t->value_past = args.value_past;
    t->valid_length = args.batch_valid_length;
    for (int64_t b = 0; b < layer.B; ++b) {
        const int64_t length = valid_length(*t, b), most = t->incremental ? layer.T - 1 : layer.T;
        if (length >= 0 && length <= most) continue;
        return invalid("batch_valid_length[%lld] is %lld: must be 0 to %lld, tgt_seq_length is %lld%s",
                       (long long)b, (long long)length, (long long)most, (long long)layer.T,
                       t->incremental && length == layer.T ? " and the past is full" : "");
    }
    return {};
}

Status read_outputs(const MindsporeSpec& layer, const AttentionSpec& spec, const Args& args, Tensors* t) {
    QUIRE_TRY(read_rows("output", args.output, t->query.type, layer.B, t->S, layer.hidden, &t->output));
    QUIRE_TRY(check_written("output", *args.output));
    t->key_present = args.layer_present_0;
    t->value_present = args.layer_present_1;
    if (t->key_present != nullptr) {
        QUIRE_TRY(check_tensor("layer_present_0", t->key_present, spec.type, "[B, H, D, T]",
                               {layer.B, spec.H, spec.D, layer.T}));
        QUIRE_TRY(check_written("layer_present_0", *t->key_present));
    }
    if (t->value_present == nullptr) return {};
    QUIRE_TRY(check_tensor("layer_present_1", t->value_present, spec.type, "[B, H, T, D]",
                           {layer.B, spec.H, layer.T, spec.D}));
    return check_written("layer_present_1", *t->value_present);
}

}  // namespace

int64_t valid_length(const Tensors& t, int64_t b) {
    const UnalignedInt32* lengths = static_cast<const UnalignedInt32*>(t.valid_length->data);
    return lengths[t.valid_length->shape[0] > 1 ? b * t.valid_length->strides[0] : 0];
}

ScoreTerm mask_term(const quire_tensor& mask) {
    quire_tensor by_head = mask;
    if (mask.rank == 3) {
        by_head.rank = 4;
        by_head.shape[1] = 1;
        by_head.strides[1] = 0;
        std::copy(mask.shape + 1, mask.shape + 3, by_head.shape + 2);
        std::copy(mask.strides + 1, mask.strides + 3, by_head.strides + 2);
    }
    ScoreTerm term = tensor_term(ScoreTerm::affine, by_head);
    term.a = 10000;
    term.b = -10000;
    return term;
}

Status check_tensors(const MindsporeSpec& layer, const AttentionSpec& spec, const Args& args, Tensors* t) {
    QUIRE_TRY(check_range("is_first_iteration", args.is_first_iteration, 0, 1));
    QUIRE_TRY(check_range("training", args.training, 0, 1));
    QUIRE_TRY(check_range("dropout_step", args.dropout_step, 0, UINT32_MAX));
    t->incremental = layer.use_past && !args.is_first_iteration;
    t->S = t->incremental ? 1 : layer.S;
    t->added = t->incremental ? 1 : layer.T;
    QUIRE_TRY(
        read_rows("query_tensor", args.query_tensor, QUIRE_NONE, layer.B, t->S, layer.hidden, &t->query));
    QUIRE_TRY(read_rows("key_tensor", args.key_tensor, QUIRE_NONE, layer.B, t->added, layer.hidden, &t->key));
    QUIRE_TRY(
        read_rows("value_tensor", args.value_tensor, QUIRE_NONE, layer.B, t->added, layer.hidden, &t->value));
    QUIRE_TRY(read_mask(layer, spec, args, t));
    QUIRE_TRY(read_past(layer, spec, args, t));
    return read_outputs(layer, spec, args, t);
}

}  // namespace quire::mindspore
