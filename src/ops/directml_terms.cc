// DML_MULTIHEAD_ATTENTION1: masks, relative_position_bias and past_sequence_lengths.
#include <cmath>

#include "src/ops/directml.h"

namespace quire::directml {
namespace {

template <typename T>
T element(const quire_tensor& t, int64_t i, int64_t j) {  // of a tensor of rank 2
    T value;
    const char* at = static_cast<const char*>(t.data) +
                     ((t.shape[0] > 1 ? i * t.strides[0] : 0) + (t.shape[1] > 1 ? j * t.strides[1] : 0)) *
                         int64_t(sizeof(T));
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Element [0, b] of a tensor [1, B] of numbers or INT32.
double number(const quire_tensor& t, int64_t b) {
    if (t.type == QUIRE_INT32) return element<int32_t>(t, 0, b);
    if (t.type == QUIRE_F32) return double(element<float>(t, 0, b));
    const uint16_t half = element<uint16_t>(t, 0, b);
    return double(load_number(t.type, &half, 0));
}

// [B or 1, H or 1, S or 1, T or 1].
Status check_broadcast(const char* name, const quire_tensor& tensor, quire_type type,
                       const AttentionSpec& spec, const Tensors& t, quire_tensor* aligned) {
    constexpr char letters[] = "[B or 1, H or 1, S or 1, T or 1]";
    QUIRE_TRY(align(name, tensor, 4, letters, aligned));
    QUIRE_TRY(check_tensor(name, aligned, type, letters, {kAny, kAny, kAny, kAny}));
    const int64_t full[] = {t.B, spec.H, t.S, t.T()};
    for (int i = 0; i < 4; ++i)
        if (aligned->shape[i] != 1 && aligned->shape[i] != full[i])
            return invalid("%s has shape %s: must be [%lld or 1, %lld or 1, %lld or 1, %lld or 1]", name,
                           shape_text(tensor).c_str(), (long long)full[0], (long long)full[1],
                           (long long)full[2], (long long)full[3]);
    return {};
}

// The masks that are a range of keys for each sequence: the documented shape as rows of B, and what they
// hold.
struct RangeMask {
    const char* letters;
    int rank;             // of the documented shape
    int64_t rows, extra;  // it has rows * B + extra elements
    bool has_begin;
};

RangeMask range_mask(quire_directml_mask_type type) {
    switch (type) {
        case QUIRE_DIRECTML_MASK_KEY_SEQUENCE_LENGTH: return {"[1, B]", 2, 1, 0, false};
        case QUIRE_DIRECTML_MASK_KEY_SEQUENCE_END_START: return {"[2, B]", 2, 2, 0, true};
        default: return {"[3 * B + 2]", 1, 3, 2, false};
    }
}

Status check_range_mask(const DirectmlSpec& directml, const quire_tensor& tensor, const Tensors& t,
                        int64_t* memory, Lengths* lengths, ScoreTerm* term) {
    const char* name = "mask_tensor";
    const RangeMask mask = range_mask(directml.mask_type);
    quire_tensor documented, rows;
    QUIRE_TRY(align(name, tensor, mask.rank, mask.letters, &documented));
    const int64_t last = mask.rank == 1 ? mask.rows * t.B + mask.extra : t.B;
    QUIRE_TRY(check_tensor(name, &documented, QUIRE_INT32, mask.letters,
                           mask.rank == 1 ? Shape{last} : Shape{mask.rows, last}));
    QUIRE_TRY(align(name, documented, 2, mask.letters, &rows));
    lengths->mask_end = memory;
    if (mask.has_begin) lengths->mask_begin = memory + t.B;
    for (int64_t b = 0; b < t.B; ++b) {
        lengths->mask_end[b] = element<int32_t>(rows, 0, b);
        if (mask.has_begin) lengths->mask_begin[b] = element<int32_t>(rows, 1, b);
    }
    term->kind = ScoreTerm::add_outside;
    term->end = {lengths->mask_end, 1, 0};
    if (mask.has_begin) term->begin = {lengths->mask_begin, 1, 0};
    return {};
}

Status check_mask(const DirectmlSpec& directml, const AttentionSpec& spec, const Args& args, const Tensors& t,
                  int64_t* memory, Lengths* lengths, AttentionProblem* problem) {
    const char* name = "mask_tensor";
    if (directml.mask_type == QUIRE_DIRECTML_MASK_NONE) {
        if (args.mask_tensor == nullptr) return {};
        return invalid("%s is given: must be NULL where mask_type is NONE", name);
    }
    if (args.mask_tensor == nullptr)
        return invalid("%s is NULL: must be given where mask_type is not NONE", name);
    const quire_tensor& tensor = *args.mask_tensor;
    if (tensor.type != QUIRE_INT32)
        return invalid("%s has type %s: must be int32", name, type_text(tensor.type).c_str());
    ScoreTerm term;
    if (directml.mask_type == QUIRE_DIRECTML_MASK_BOOLEAN) {
        QUIRE_TRY(check_rank(name, tensor, 1, 5, "[B or 1, H or 1, S or 1, T or 1]"));
        quire_tensor mask;
        QUIRE_TRY(check_broadcast(name, tensor, QUIRE_INT32, spec, t, &mask));
        term = tensor_term(ScoreTerm::add_where_zero, mask);
    } else {
        QUIRE_TRY(check_rank(name, tensor, 1, 5, range_mask(directml.mask_type).letters));
        QUIRE_TRY(check_range_mask(directml, tensor, t, memory, lengths, &term));
    }
    term.a = directml.mask_filter_value;
    problem->add_term(term);
    return {};
}

Status check_relative_position_bias(const AttentionSpec& spec, const Args& args, const Tensors& t,
                                    AttentionProblem* problem) {
    if (args.relative_position_bias_tensor == nullptr) return {};
    const char* name = "relative_position_bias_tensor";
    const quire_tensor& tensor = *args.relative_position_bias_tensor;
    if (tensor.type != spec.type)
        return invalid("%s has type %s: must be data_type, %s", name, type_text(tensor.type).c_str(),
                       type_name(spec.type));
    QUIRE_TRY(check_rank(name, tensor, 4, 5, "[B or 1, H or 1, S or 1, T or 1]"));
    quire_tensor bias;
    QUIRE_TRY(check_broadcast(name, tensor, spec.type, spec, t, &bias));
    problem->add_term(tensor_term(ScoreTerm::add, bias));
    return {};
}

}  // namespace

Status check_terms(const DirectmlSpec& directml, const AttentionSpec& spec, const Args& args,
                   const Tensors& tensors, int64_t* memory, Lengths* lengths, AttentionProblem* problem) {
    QUIRE_TRY(check_relative_position_bias(spec, args, tensors, problem));
    return check_mask(directml, spec, args, tensors, memory, lengths, problem);
}

Status check_past_lengths(const AttentionSpec& spec, const Args& args, const Tensors& t, int64_t* memory,
                          Lengths* lengths) {
    if (args.past_sequence_lengths_tensor == nullptr) return {};
    const char* name = "past_sequence_lengths_tensor";
    const quire_tensor& tensor = *args.past_sequence_lengths_tensor;
    if (!given(t.past_key)) return invalid("%s is given: must be NULL without past_key_tensor", name);
    if (tensor.type != spec.type && tensor.type != QUIRE_INT32)
        return invalid("%s has type %s: must be data_type, %s, or int32", name,
                       type_text(tensor.type).c_str(), type_name(spec.type));
    QUIRE_TRY(check_rank(name, tensor, 1, 5, "[B]"));
    quire_tensor aligned, row;
    QUIRE_TRY(align(name, tensor, 1, "[B]", &aligned));
    QUIRE_TRY(check_tensor(name, &aligned, tensor.type, "[B]", {t.B}));
    QUIRE_TRY(align(name, aligned, 2, "[B]", &row));
    lengths->past = memory;
    lengths->end = memory + t.B;
    lengths->unused = memory + 2 * t.B;
    for (int64_t b = 0; b < t.B; ++b) {
        const double value = number(row, b);
        if (!(value >= 0 && value <= double(t.past)) || value != std::floor(value))
            return invalid("%s[%lld] is %g: must be a whole number 0 to %lld", name, (long long)b, value,
                           (long long)t.past);
        lengths->past[b] = int64_t(value);
        lengths->end[b] = lengths->past[b] + t.added;
        lengths->unused[b] = t.past - lengths->past[b];
    }
    return {};
}

}  // namespace quire::directml
