// DML_MULTIHEAD_ATTENTION1: separate and stacked tensors -> views [B, tokens, heads, size].

#include "src/ops/directml.h"

namespace quire::directml {
namespace {

Status check_type(const char* name, const quire_tensor& tensor, quire_type type) {
    if (tensor.type == type) return {};
    return invalid("%s has type %s: must be data_type, %s", name, type_text(tensor.type).c_str(),
                   type_name(type));
}

// ---- which tensors there are ----

struct Named {
    const char* name;
    const quire_tensor* tensor;
};

Status check_exclusive(const Named& one, std::initializer_list<Named> others) {
    if (one.tensor == nullptr) return {};
    for (const Named& other : others)
        if (other.tensor != nullptr)
            return invalid("%s is given: must be NULL with %s", other.name, one.name);
    return {};
}

// `name` must be given, because of `reason`.
Status check_given(const char* name, const quire_tensor* tensor, const char* reason) {
    if (tensor != nullptr) return {};
    return invalid("%s is NULL: must be given %s", name, reason);
}

Status check_choice(const Args& a) {
    const Named query{"query_tensor", a.query_tensor}, key{"key_tensor", a.key_tensor},
        value{"value_tensor", a.value_tensor},
        query_key{"stacked_query_key_tensor", a.stacked_query_key_tensor},
        key_value{"stacked_key_value_tensor", a.stacked_key_value_tensor};
    const Named all{"stacked_query_key_value_tensor", a.stacked_query_key_value_tensor};
    QUIRE_TRY(check_exclusive(all, {query, key, value, query_key, key_value}));
    QUIRE_TRY(check_exclusive(query_key, {query, key, key_value}));
    QUIRE_TRY(check_exclusive(key_value, {key, value}));
    if (all.tensor == nullptr && query_key.tensor == nullptr)
        QUIRE_TRY(check_given("query_tensor", query.tensor,
                              "without a stacked_query_key_tensor or stacked_query_key_value_tensor"));
    if (query_key.tensor != nullptr)
        QUIRE_TRY(check_given("value_tensor", value.tensor, "with stacked_query_key_tensor"));
    if (key.tensor != nullptr) QUIRE_TRY(check_given("value_tensor", value.tensor, "with key_tensor"));
    if (value.tensor != nullptr && query_key.tensor == nullptr)
        QUIRE_TRY(check_given("key_tensor", key.tensor, "with value_tensor"));
    if (a.past_key_tensor != nullptr)
        QUIRE_TRY(check_given("past_value_tensor", a.past_value_tensor, "with past_key_tensor"));
    else if (a.past_value_tensor != nullptr)
        QUIRE_TRY(check_given("past_key_tensor", a.past_key_tensor, "with past_value_tensor"));
    else if (value.tensor == nullptr && key_value.tensor == nullptr && all.tensor == nullptr)
        QUIRE_TRY(check_given("key_tensor", nullptr, "where there is no past_key_tensor"));
    return {};
}

// ---- arrangements ----

struct Arrangement {
    const AttentionSpec& spec;
    int64_t B, tokens;  // kAny: to be learnt

    // [..., B, tokens, heads * size] in 3 to 5 dimensions.
    Status separate(const char* name, const quire_tensor& tensor, const char* letters, int heads, int size,
                    quire_tensor* view) const {
        QUIRE_TRY(check_type(name, tensor, spec.type));
        QUIRE_TRY(check_rank(name, tensor, 3, 5, letters));
        quire_tensor rows;
        QUIRE_TRY(align(name, tensor, 3, letters, &rows));
        QUIRE_TRY(check_tensor(name, &rows, spec.type, letters, {B, tokens, int64_t(heads) * size}));
        QUIRE_TRY(check_contiguous(name, rows));
        *view = rows;
        view->rank = 4;
        view->shape[2] = heads;
        view->strides[2] = size;
        view->shape[3] = size;
        view->strides[3] = 1;
        return {};
    }

    // Part `part` of [B, tokens, heads, parts, size].
    Status stacked(const char* name, const quire_tensor& tensor, const char* letters, int heads, int parts,
                   int part, quire_tensor* view) const {
        QUIRE_TRY(check_type(name, tensor, spec.type));
        QUIRE_TRY(check_rank(name, tensor, 5, 5, letters));
        QUIRE_TRY(check_tensor(name, &tensor, spec.type, letters, {B, tokens, heads, parts, spec.D}));
        QUIRE_TRY(check_contiguous(name, tensor));
        *view = tensor;
        view->rank = 4;
        if (tensor.shape[0] > 0 && tensor.shape[1] > 0)
            view->data = static_cast<char*>(tensor.data) + bytes_of(tensor.type, part * tensor.strides[3]);
        view->shape[3] = spec.D;
        view->strides[3] = 1;
        return {};
    }

    // [..., B, heads, tokens, size] in 4 or 5 dimensions.
    Status by_heads(const char* name, const quire_tensor& tensor, const char* letters, int size,
                    quire_tensor* view) const {
        QUIRE_TRY(check_type(name, tensor, spec.type));
        QUIRE_TRY(check_rank(name, tensor, 4, 5, letters));
        QUIRE_TRY(align(name, tensor, 4, letters, view));
        QUIRE_TRY(check_tensor(name, view, spec.type, letters, {B, spec.Hk, tokens, size}));
        QUIRE_TRY(check_contiguous(name, *view));
        std::swap(view->shape[1], view->shape[2]);
        std::swap(view->strides[1], view->strides[2]);
        return {};
    }
};

Status check_stacked_sizes(const char* name, const AttentionSpec& spec, bool queries, bool values) {
    if (queries && spec.H != spec.Hk)
        return invalid(
            "%s is given: query_head_count, %d, and key_value_head_count, %d, must be equal with it", name,
            spec.H, spec.Hk);
    if (values && spec.D != spec.Dv)
        return invalid("%s is given: head_size, %d, and value_head_size, %d, must be equal with it", name,
                       spec.D, spec.Dv);
    return {};
}

// ---- queries, keys and values ----

constexpr char kStackedQueryKey[] = "[B, S, H, 2, D]", kStackedKeyValue[] = "[B, N, Hk, 2, D]",
               kStackedQueryKeyValue[] = "[B, S, H, 3, D]";

Status read_queries(const AttentionSpec& spec, const Args& a, Tensors* t) {
    const Arrangement any{spec, kAny, kAny};
    if (a.query_tensor != nullptr) {
        QUIRE_TRY(any.separate("query_tensor", *a.query_tensor, "[B, S, H * D]", spec.H, spec.D, &t->query));
    } else if (const quire_tensor* stacked = a.stacked_query_key_tensor) {
        QUIRE_TRY(check_stacked_sizes("stacked_query_key_tensor", spec, true, false));
        QUIRE_TRY(
            any.stacked("stacked_query_key_tensor", *stacked, kStackedQueryKey, spec.H, 2, 0, &t->query));
    } else {
        const char* name = "stacked_query_key_value_tensor";
        QUIRE_TRY(any.stacked(name, *a.stacked_query_key_value_tensor, kStackedQueryKeyValue, spec.H, 3, 0,
                              &t->query));
        QUIRE_TRY(check_stacked_sizes(name, spec, true, true));
    }
    t->B = t->query.shape[0];
    t->S = t->query.shape[1];
    return check_range("batchSize", t->B, 0, kMaxBatch);
}

Status read_keys_and_values(const AttentionSpec& spec, const Args& a, Tensors* t) {
    Arrangement of{spec, t->B, kAny};
    if (const quire_tensor* stacked = a.stacked_query_key_value_tensor) {
        const char* name = "stacked_query_key_value_tensor";
        QUIRE_TRY(of.stacked(name, *stacked, kStackedQueryKeyValue, spec.H, 3, 1, &t->key));
        QUIRE_TRY(of.stacked(name, *stacked, kStackedQueryKeyValue, spec.H, 3, 2, &t->value));
    } else if ((stacked = a.stacked_key_value_tensor)) {
        QUIRE_TRY(of.stacked("stacked_key_value_tensor", *stacked, kStackedKeyValue, spec.Hk, 2, 0, &t->key));
        QUIRE_TRY(check_stacked_sizes("stacked_key_value_tensor", spec, false, true));
        QUIRE_TRY(
            of.stacked("stacked_key_value_tensor", *stacked, kStackedKeyValue, spec.Hk, 2, 1, &t->value));
    } else if ((stacked = a.stacked_query_key_tensor)) {
        QUIRE_TRY(of.stacked("stacked_query_key_tensor", *stacked, kStackedQueryKey, spec.H, 2, 1, &t->key));
    } else if (a.key_tensor != nullptr) {
        QUIRE_TRY(of.separate("key_tensor", *a.key_tensor, "[B, N, Hk * D]", spec.Hk, spec.D, &t->key));
    }
    if (!given(t->key)) return {};
    of.tokens = t->added = t->key.shape[1];
    if (a.value_tensor != nullptr)
        QUIRE_TRY(
            of.separate("value_tensor", *a.value_tensor, "[B, N, Hk * Dv]", spec.Hk, spec.Dv, &t->value));
    return {};
}

Status read_past(const AttentionSpec& spec, const Args& a, Tensors* t) {
    if (a.past_key_tensor == nullptr) return {};
    Arrangement of{spec, t->B, kAny};
    QUIRE_TRY(of.by_heads("past_key_tensor", *a.past_key_tensor, "[B, Hk, past, D]", spec.D, &t->past_key));
    of.tokens = t->past = t->past_key.shape[1];
    int64_t T;
    if (__builtin_add_overflow(t->past, t->added, &T))
        return invalid("past_key_tensor has %lld positions: with %lld new ones they must fit in 63 bits",
                       (long long)t->past, (long long)t->added);
    return of.by_heads("past_value_tensor", *a.past_value_tensor, "[B, Hk, past, Dv]", spec.Dv,
                       &t->past_value);
}

Status read_bias(const AttentionSpec& spec, const Args& a, Tensors* t) {
    if (a.bias_tensor == nullptr) return {};
    const char *name = "bias_tensor", *letters = "[H * D + Hk * D + Hk * Dv]";
    QUIRE_TRY(check_type(name, *a.bias_tensor, spec.type));
    QUIRE_TRY(check_rank(name, *a.bias_tensor, 1, 5, letters));
    quire_tensor bias;
    QUIRE_TRY(align(name, *a.bias_tensor, 1, letters, &bias));
    const int64_t size = int64_t(spec.H) * spec.D + int64_t(spec.Hk) * (spec.D + spec.Dv);
    QUIRE_TRY(check_tensor(name, &bias, spec.type, letters, {size}));
    QUIRE_TRY(check_contiguous(name, bias));
    t->bias = static_cast<const char*>(bias.data);
    return {};
}

Status read_outputs(const AttentionSpec& spec, const Args& a, Tensors* t) {
    QUIRE_TRY(check_given("output_tensor", a.output_tensor, "in every call"));
    QUIRE_TRY(
        (Arrangement{spec, t->B, t->S})
            .separate("output_tensor", *a.output_tensor, "[B, S, H * Dv]", spec.H, spec.Dv, &t->output));
    QUIRE_TRY(check_written("output_tensor", *a.output_tensor));
    const Arrangement all{spec, t->B, t->T()};
    const auto present = [&](const char* name, const quire_tensor* tensor, const char* letters, int size,
                             quire_tensor* view) -> Status {
        if (tensor == nullptr) return {};
        QUIRE_TRY(all.by_heads(name, *tensor, letters, size, view));
        return check_written(name, *tensor);
    };
    QUIRE_TRY(present("output_present_key_tensor", a.output_present_key_tensor, "[B, Hk, T, D]", spec.D,
                      &t->present_key));
    return present("output_present_value_tensor", a.output_present_value_tensor, "[B, Hk, T, Dv]", spec.Dv,
                   &t->present_value);
}

}  // namespace

Status check_rank(const char* name, const quire_tensor& tensor, int low, int high, const char* letters) {
    if (tensor.rank >= low && tensor.rank <= high) return {};
    if (low == high) return invalid("%s has rank %d: must be %d, %s", name, tensor.rank, low, letters);
    return invalid("%s has rank %d: must be %d to %d, %s", name, tensor.rank, low, high, letters);
}

Status align(const char* name, const quire_tensor& tensor, int rank, const char* letters,
             quire_tensor* aligned) {
    *aligned = tensor;
    aligned->rank = rank;
    const int extra = tensor.rank - rank;
    for (int i = 0; i < extra; ++i)
        if (tensor.shape[i] != 1)
            return invalid("%s has shape %s: dimensions before those of %s must have length 1", name,
                           shape_text(tensor).c_str(), letters);
    for (int i = 0; i < rank; ++i) {
        aligned->shape[i] = i + extra < 0 ? 1 : tensor.shape[i + extra];
        aligned->strides[i] = i + extra < 0 ? 0 : tensor.strides[i + extra];
    }
    return {};
}

Status check_tensors(const AttentionSpec& spec, const Args& args, Tensors* tensors) {
    QUIRE_TRY(check_choice(args));
    QUIRE_TRY(read_queries(spec, args, tensors));
    QUIRE_TRY(read_keys_and_values(spec, args, tensors));
    QUIRE_TRY(read_past(spec, args, tensors));
    QUIRE_TRY(read_bias(spec, args, tensors));
    return read_outputs(spec, args, tensors);
}

}  // namespace quire::directml
