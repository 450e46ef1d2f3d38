#include "src/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace quire {
namespace {

// True, and *product = a * b, where that fits.
bool multiply(int64_t a, int64_t b, int64_t* product) { return !__builtin_mul_overflow(a, b, product); }

std::string shape_text(const quire_tensor& tensor) {
    std::string text = "[";
    for (int i = 0; i < tensor.rank; ++i) text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
    return text + "]";
}

int64_t bytes_of(quire_type type, int64_t elements) { return elements * type_bits(type) / 8; }

// The furthest element from the first, in bits, must be addressable.
Status check_extent(const char* name, const quire_tensor& tensor) {
    int64_t elements = 1, reach = 0;
    for (int i = 0; i < tensor.rank; ++i) {
        if (tensor.shape[i] == 0) return {};
        int64_t step = 0;
        const bool fits = multiply(elements, tensor.shape[i], &elements) &&
                          multiply(tensor.shape[i] - 1, tensor.shape[i] > 1 ? tensor.strides[i] : 0, &step) &&
                          !__builtin_add_overflow(reach, step < 0 ? -step : step, &reach);
        if (!fits || reach > std::numeric_limits<int64_t>::max() / 64 ||
            elements > std::numeric_limits<int64_t>::max() / 64)
            return invalid("%s has shape %s: its size must fit in 63 bits", name, shape_text(tensor).c_str());
    }
    if (tensor.data == nullptr) return invalid("%s has null data: must point at %s elements", name, shape_text(tensor).c_str());
    return {};
}

// [rows, heads, ...], or [B, rows, heads, ...] with `batched`.
RowView row_view(const quire_tensor& t, bool batched) {
    const auto stride = [&](int i) { return t.shape[i] > 1 ? bytes_of(t.type, t.strides[i]) : 0; };
    const int row = batched ? 1 : 0;
    return {static_cast<char*>(t.data), stride(row), stride(row + 1), batched ? stride(0) : 0};
}

// Rows of one head: the last dimension is contiguous, and int4 rows begin at whole bytes.
Status check_rows(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                  const std::vector<int64_t>& shape, RowView* view) {
    QUIRE_TRY(check_tensor(name, tensor, type, letters, shape));
    const int last = tensor->rank - 1;
    if (tensor->shape[last] > 1 && tensor->strides[last] != 1)
        return invalid("%s has stride %lld in its last dimension: must be 1", name, (long long)tensor->strides[last]);
    if (type == QUIRE_INT4)
        for (int i = 0; i < last; ++i)
            if (tensor->shape[i] > 1 && tensor->strides[i] % 2 != 0)
                return invalid("%s has stride %lld in dimension %d: must be even for int4", name,
                               (long long)tensor->strides[i], i);
    *view = row_view(*tensor, shape.size() == 4);
    return {};
}

struct CacheTensors {
    const quire_tensor *key, *value, *key_scale, *value_scale;
};

// Leading dimensions of keys and values: {slots}, or {B, T}.
using Lead = std::vector<int64_t>;

std::vector<int64_t> with(const Lead& lead, int64_t heads, int64_t last) {
    std::vector<int64_t> shape = lead;
    shape.push_back(heads);
    shape.push_back(last);
    return shape;
}

Status check_scales(const char* name, const quire_tensor* tensor, const quire_format& format, const Lead& lead, int Hk,
                    int dim, RowView* view) {
    if (!is_quantised(format)) {
        if (tensor != nullptr)
            return invalid("%s is given: must be NULL where the format is %s", name, type_name(format.type));
        return {};
    }
    return check_rows(name, tensor, format.scale_type,
                      lead.size() == 2 ? "[B, T, Hk, D / quant_group]" : "[slots, Hk, D / quant_group]",
                      with(lead, Hk, dim / format.quant_group), view);
}

// `lead` is {kAny} or {B, kAny}; filled in from the keys.
Status check_cache(const CacheTensors& t, const quire_format& key_format, const quire_format& value_format, int Hk,
                   int D, int Dv, Lead* lead, CacheView* cache) {
    const bool batched = lead->size() == 2;
    QUIRE_TRY(check_rows("key", t.key, key_format.type, batched ? "[B, T, Hk, D]" : "[slots, Hk, D]",
                         with(*lead, Hk, D), &cache->key));
    lead->back() = t.key->shape[lead->size() - 1];
    QUIRE_TRY(check_rows("value", t.value, value_format.type, batched ? "[B, T, Hk, Dv]" : "[slots, Hk, Dv]",
                         with(*lead, Hk, Dv), &cache->value));
    QUIRE_TRY(check_scales("key_scale", t.key_scale, key_format, *lead, Hk, D, &cache->key_scale));
    return check_scales("value_scale", t.value_scale, value_format, *lead, Hk, Dv, &cache->value_scale);
}

Status check_row_range(const char* name, int64_t begin, int64_t count, int64_t slots) {
    if (begin < 0 || begin > slots - count)
        return invalid("%s is %lld: rows %lld to %lld must lie in the cache's %lld slots", name, (long long)begin,
                       (long long)begin, (long long)(begin + count - 1), (long long)slots);
    return {};
}

// Every start that positions 0 .. keys - 1 of sequence b read is in the cache.
Status check_positions(const CacheView& cache, int64_t max_pages, int64_t b, int64_t keys, int64_t slots) {
    if (keys == 0) return {};
    if (cache.page_size == 0)
        return check_row_range(("cachestarts[" + std::to_string(b) + "]").c_str(), cache.starts(b), keys, slots);
    const int64_t pages = (keys - 1) / cache.page_size + 1;
    if (pages > max_pages)
        return invalid("cachestarts has %lld pages a sequence: sequence %lld needs %lld for %lld positions",
                       (long long)max_pages, (long long)b, (long long)pages, (long long)keys);
    for (int64_t p = 0; p < pages; ++p) {
        const int64_t start = cache.starts(b, p), used = std::min(cache.page_size, keys - p * cache.page_size);
        if (start < 0 || start > slots - used)  // the name is only spelled out when it is needed
            return check_row_range(("cachestarts[" + std::to_string(b) + ", " + std::to_string(p) + "]").c_str(),
                                   start, used, slots);
    }
    return {};
}

Status check_cachestarts(const quire_tensor* tensor, int64_t B, int64_t page_size, int64_t* max_pages,
                         CacheView* cache) {
    cache->page_size = page_size;
    if (page_size == 0) return check_index("cachestarts", tensor, "[B]", {B}, &cache->starts);
    QUIRE_TRY(check_index("cachestarts", tensor, "[B, MaxP]", {B, kAny}, &cache->starts));
    *max_pages = tensor->shape[1];
    return {};
}

Status check_mask_shape(const quire_tensor& t, const AttentionProblem& p) {
    const int64_t H = p.spec->H, columns = p.keys_at.begin(p.B);
    const int last = t.rank - 1;
    if (t.rank == 2) {
        QUIRE_TRY(check_tensor("attn_mask", &t, t.type, "[n, >= kvstarts[B]]", {p.n, kAny}));
    } else {
        QUIRE_TRY(check_tensor("attn_mask", &t, t.type, "[H or 1, n, >= kvstarts[B]]", {kAny, p.n, kAny}));
        if (t.shape[0] != H && t.shape[0] != 1)
            return invalid("attn_mask has shape %s: its first dimension must be 1 or num_heads, %lld",
                           shape_text(t).c_str(), (long long)H);
    }
    if (t.shape[last] < columns)
        return invalid("attn_mask has %lld columns: must have at least kvstarts[B], %lld", (long long)t.shape[last],
                       (long long)columns);
    return {};
}

// [B or 1, H or 1, S or 1, T or 1] for the longest sequences.
Status check_batch_mask_shape(const quire_tensor& t, const AttentionProblem& p) {
    int64_t S = 0, T = 0;
    for (int64_t b = 0; b < p.B; ++b) {
        S = std::max(S, p.queries(b));
        T = std::max(T, p.keys(b));
    }
    QUIRE_TRY(check_tensor("attn_mask", &t, t.type, "[B or 1, H or 1, S or 1, T or 1]", {kAny, kAny, kAny, kAny}));
    const int64_t exact[2] = {p.B, p.spec->H}, least[2] = {S, T};
    for (int i = 0; i < 4; ++i) {
        const bool fits = t.shape[i] == 1 || (i < 2 ? t.shape[i] == exact[i] : t.shape[i] >= least[i - 2]);
        if (!fits)
            return invalid("attn_mask has shape %s: must be [%lld or 1, %lld or 1, %lld or 1, %lld or 1]",
                           shape_text(t).c_str(), (long long)p.B, (long long)p.spec->H, (long long)S, (long long)T);
    }
    return {};
}

// Adds the mask's term; the problem's sequences are known.
Status check_mask(const quire_tensor* tensor, AttentionProblem* p) {
    if (tensor == nullptr) return {};
    const quire_tensor& t = *tensor;
    if (t.type != QUIRE_F32 && t.type != QUIRE_F16 && t.type != QUIRE_BF16 && t.type != QUIRE_BOOL)
        return invalid("attn_mask has type %s: must be f32, f16, bf16 or bool", type_name(t.type));
    ScoreTerm term = tensor_term(t.type == QUIRE_BOOL ? ScoreTerm::hide_where_zero : ScoreTerm::add, t);
    if (t.rank == 4) {
        QUIRE_TRY(check_batch_mask_shape(t, *p));
    } else {
        QUIRE_TRY(check_mask_shape(t, *p));
        term.packed = true;
    }
    if (p->n > 0 && t.data != nullptr) p->add_term(term);
    return {};
}

Status check_tree_mask(const quire_tensor* tensor, AttentionProblem* p) {
    if (tensor == nullptr) return {};
    QUIRE_TRY(check_tensor("tree_mask", tensor, QUIRE_INT64, "[n, words]", {p->n, kAny}));
    for (int64_t b = 0; b < p->B; ++b)
        if (tensor->shape[1] * 64 < p->queries(b))
            return invalid("tree_mask has %lld words a token: sequence %lld has %lld new keys and needs %lld",
                           (long long)tensor->shape[1], (long long)b, (long long)p->queries(b),
                           (long long)((p->queries(b) + 63) / 64));
    ScoreTerm term = tensor_term(ScoreTerm::tree, *tensor);
    term.packed = true;
    if (p->n > 0 && tensor->data != nullptr) p->add_term(term);
    return {};
}

// seqstarts, or one sequence of all n tokens.
Status check_sequences(const quire_tensor* tensor, int64_t n, IndexView* view, int64_t* B) {
    if (tensor == nullptr) {
        *B = 1;
        return {};
    }
    QUIRE_TRY(check_tensor("seqstarts", tensor, QUIRE_INT64, "[B + 1]", {kAny}));
    *B = tensor->shape[0] - 1;
    if (*B < 0) return invalid("seqstarts has shape [0]: must be [B + 1]");
    return check_starts("seqstarts", tensor, *B, n, view);
}

// Query tokens: packed rows with seqstarts, or [B, S, H, D].
Status check_queries(const quire_attention_args& args, AttentionProblem* p) {
    const AttentionSpec& spec = *p->spec;
    p->batched = args.query != nullptr && args.query->rank == 4;
    if (!p->batched) {
        QUIRE_TRY(check_rows("query", args.query, spec.type, "[n, H, D]", {kAny, spec.H, spec.D}, &p->query));
        p->n = p->queries_at.uniform = args.query->shape[0];
        return check_sequences(args.seqstarts, p->n, &p->queries_at.given, &p->B);
    }
    QUIRE_TRY(check_rows("query", args.query, spec.type, "[B, S, H, D]", {kAny, kAny, spec.H, spec.D}, &p->query));
    if (args.seqstarts != nullptr) return invalid("seqstarts is given: must be NULL with a query [B, S, H, D]");
    p->B = args.query->shape[0];
    p->queries_at.uniform = args.query->shape[1];
    p->n = p->B * p->queries_at.uniform;
    return {};
}

// Keys: [B, T, Hk, D], dense rows, or a cache.
Status check_keys(const quire_attention_args& args, AttentionProblem* p) {
    const AttentionSpec& spec = *p->spec;
    const CacheTensors tensors{args.key, args.value, args.key_scale, args.value_scale};
    const bool batched = args.key != nullptr && args.key->rank == 4;
    Lead lead = batched ? Lead{p->B, kAny} : Lead{kAny};
    QUIRE_TRY(check_cache(tensors, spec.key_format, spec.value_format, spec.Hk, spec.D, spec.Dv, &lead, &p->cache));
    if (batched) {
        if (args.kvstarts != nullptr) return invalid("kvstarts is given: must be NULL with a key [B, T, Hk, D]");
        if (args.cachestarts != nullptr) return invalid("cachestarts is given: must be NULL with a key [B, T, Hk, D]");
        if (spec.page_size != 0) return invalid("key has rank 4: must be [slots, Hk, D] with a page_size");
        p->keys_at.uniform = lead[1];
        return {};
    }
    const int64_t slots = lead[0];
    if (args.kvstarts == nullptr) {
        if (p->B != 1) return invalid("kvstarts is NULL: must be given for %lld sequences", (long long)p->B);
        if (args.cachestarts != nullptr) return invalid("kvstarts is NULL: must be given with cachestarts");
        p->keys_at.uniform = slots;
    } else {
        QUIRE_TRY(check_starts("kvstarts", args.kvstarts, p->B, kAny, &p->keys_at.given));
    }
    if (args.cachestarts == nullptr) {
        if (spec.page_size != 0) return invalid("cachestarts is NULL: must be given with a page_size");
        if (p->keys_at.begin(p->B) > slots)
            return invalid("kvstarts[%lld] is %lld: must be at most the rows of key, %lld", (long long)p->B,
                           (long long)p->keys_at.begin(p->B), (long long)slots);
        p->cache.starts = p->keys_at.given;
        return {};
    }
    int64_t max_pages = 0;
    QUIRE_TRY(check_cachestarts(args.cachestarts, p->B, spec.page_size, &max_pages, &p->cache));
    for (int64_t b = 0; b < p->B; ++b) QUIRE_TRY(check_positions(p->cache, max_pages, b, p->keys(b), slots));
    return {};
}

Status check_key_ranges(const quire_attention_args& args, AttentionProblem* p) {
    if (args.query_positions != nullptr)
        QUIRE_TRY(check_index("query_positions", args.query_positions, "[B]", {p->B}, &p->query_positions));
    if (args.key_begin != nullptr) QUIRE_TRY(check_index("key_begin", args.key_begin, "[B]", {p->B}, &p->key_begin));
    if (args.key_end != nullptr) QUIRE_TRY(check_index("key_end", args.key_end, "[B]", {p->B}, &p->key_end));
    constexpr int64_t kFar = int64_t(1) << 40;  // keeps sums of positions and lengths in range
    for (int64_t b = 0; b < p->B; ++b) {
        const auto check = [&](const char* name, const IndexView& view, int64_t low, int64_t high) -> Status {
            if (!view || (view(b) >= low && view(b) <= high)) return {};
            return check_range((name + ("[" + std::to_string(b) + "]")).c_str(), view(b), low, high);
        };
        QUIRE_TRY(check("query_positions", p->query_positions, -kFar, kFar));
        QUIRE_TRY(check("key_begin", p->key_begin, 0, p->keys(b)));
        QUIRE_TRY(check("key_end", p->key_end, 0, p->keys(b)));
    }
    return {};
}

Status check_outputs(const quire_attention_args& args, AttentionProblem* p) {
    const AttentionSpec& spec = *p->spec;
    const int64_t S = p->queries_at.uniform;
    if (p->batched) {
        QUIRE_TRY(check_rows("output", args.output, spec.type, "[B, S, H, Dv]", {p->B, S, spec.H, spec.Dv}, &p->output));
        if (args.lse == nullptr) return {};
        QUIRE_TRY(check_tensor("lse", args.lse, QUIRE_F32, "[B, S, H]", {p->B, S, spec.H}));
    } else {
        QUIRE_TRY(check_rows("output", args.output, spec.type, "[n, H, Dv]", {p->n, spec.H, spec.Dv}, &p->output));
        if (args.lse == nullptr) return {};
        QUIRE_TRY(check_tensor("lse", args.lse, QUIRE_F32, "[n, H]", {p->n, spec.H}));
    }
    p->lse = row_view(*args.lse, p->batched);
    return {};
}

}  // namespace

// ---- public pieces ----

Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        return invalid("%s is %lld: must be %lld to %lld", name, (long long)value, (long long)low, (long long)high);
    return {};
}

Status check_tensor(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                    const std::vector<int64_t>& shape) {
    if (tensor == nullptr) return invalid("%s is NULL: must be a tensor %s", name, letters);
    if (tensor->type != type)
        return invalid("%s has type %s: must be %s", name, type_name(tensor->type), type_name(type));
    if (tensor->rank != int(shape.size()))
        return invalid("%s has rank %d: must be %d, %s", name, tensor->rank, int(shape.size()), letters);
    for (int i = 0; i < tensor->rank; ++i) {
        const int64_t wanted = shape[size_t(i)], got = tensor->shape[i];
        if (got < 0) return invalid("%s has length %lld in dimension %d: must be >= 0", name, (long long)got, i);
        if (wanted != kAny && got != wanted)
            return invalid("%s has shape %s: dimension %d of %s must be %lld", name, shape_text(*tensor).c_str(), i,
                           letters, (long long)wanted);
    }
    return check_extent(name, *tensor);
}

Status check_index(const char* name, const quire_tensor* tensor, const char* letters,
                   const std::vector<int64_t>& shape, IndexView* view) {
    QUIRE_TRY(check_tensor(name, tensor, QUIRE_INT64, letters, shape));
    *view = {static_cast<const int64_t*>(tensor->data), tensor->rank > 0 ? tensor->strides[0] : 0,
             tensor->rank > 1 ? tensor->strides[1] : 0};
    return {};
}

Status check_starts(const char* name, const quire_tensor* tensor, int64_t B, int64_t total, IndexView* view) {
    QUIRE_TRY(check_index(name, tensor, "[B + 1]", {B + 1}, view));
    const IndexView& starts = *view;
    if (starts(0) != 0) return invalid("%s[0] is %lld: must be 0", name, (long long)starts(0));
    for (int64_t b = 0; b < B; ++b)
        if (starts(b + 1) < starts(b))
            return invalid("%s[%lld] is %lld: must be >= %s[%lld], which is %lld", name, (long long)(b + 1),
                           (long long)starts(b + 1), name, (long long)b, (long long)starts(b));
    if (total != kAny && starts(B) != total)
        return invalid("%s[%lld] is %lld: must be n, %lld", name, (long long)B, (long long)starts(B), (long long)total);
    return {};
}

Status check_format(const char* name, const quire_format& format, int dim) {
    const FormatInfo* info = format_info(format.type);
    if (info == nullptr)
        return invalid("%s.type is %s: must be f32, f16, bf16, int8 or int4", name, type_name(format.type));
    if (info->max_code == 0) return {};
    if (format.quant_group < 1 || dim % format.quant_group != 0)
        return invalid("%s.quant_group is %d: must divide the head size, %d", name, format.quant_group, dim);
    if (format.scale_type != QUIRE_F32 && format.scale_type != QUIRE_F16)
        return invalid("%s.scale_type is %s: must be f32 or f16", name, type_name(format.scale_type));
    if (format.type == QUIRE_INT4 && dim % 2 != 0)
        return invalid("%s.type is int4: needs an even head size, got %d", name, dim);
    return {};
}

namespace {

Status check_activation_type(const char* name, quire_type type) {
    if (type == QUIRE_F32 || type == QUIRE_F16 || type == QUIRE_BF16) return {};
    return invalid("%s is %s: must be f32, f16 or bf16", name, type_name(type));
}

// Fields that do not count are zero, so that equal formats compare equal.
quire_format plain(const quire_format& format) {
    return is_quantised(format) ? format : quire_format{format.type, 0, QUIRE_NONE};
}

Status check_heads(int num_heads, int num_kv_heads, int* Hk) {
    QUIRE_TRY(check_range("num_heads", num_heads, 1, 1 << 20));
    QUIRE_TRY(check_range("num_kv_heads", num_kv_heads, 0, 1 << 20));
    *Hk = num_kv_heads == 0 ? num_heads : num_kv_heads;
    if (num_heads % *Hk != 0) return invalid("num_kv_heads is %d: must divide num_heads, %d", *Hk, num_heads);
    return {};
}

Status check_head_dims(int head_dim, int value_head_dim, int* Dv) {
    QUIRE_TRY(check_range("head_dim", head_dim, 1, 1024));
    QUIRE_TRY(check_range("value_head_dim", value_head_dim, 0, 1024));
    *Dv = value_head_dim == 0 ? head_dim : value_head_dim;
    return {};
}

constexpr int64_t kMaxPageSize = int64_t(1) << 30;

}  // namespace

Status check_attention_desc(const quire_attention_desc& desc, AttentionSpec* spec) {
    AttentionSpec s{};
    QUIRE_TRY(check_heads(desc.num_heads, desc.num_kv_heads, &s.Hk));
    QUIRE_TRY(check_head_dims(desc.head_dim, desc.value_head_dim, &s.Dv));
    s.H = desc.num_heads;
    s.D = desc.head_dim;
    QUIRE_TRY(check_activation_type("type", desc.type));
    s.type = desc.type;
    QUIRE_TRY(check_format("key_format", desc.key_format, s.D));
    QUIRE_TRY(check_format("value_format", desc.value_format, s.Dv));
    s.key_format = plain(desc.key_format);
    s.value_format = plain(desc.value_format);
    if (!std::isfinite(desc.scale)) return invalid("scale is %g: must be finite", double(desc.scale));
    s.scale = desc.scale == 0 ? float(1.0 / std::sqrt(double(s.D))) : desc.scale;
    s.causal = desc.is_causal != 0;
    QUIRE_TRY(check_range("causal_corner", desc.causal_corner, 0, 1));
    s.top_left = desc.causal_corner == 1;
    s.alibi = desc.is_alibi != 0;
    s.window_left = desc.has_window ? desc.window_left : -1;
    s.window_right = desc.has_window ? desc.window_right : -1;
    if (!(desc.logits_soft_cap >= 0) || std::isinf(desc.logits_soft_cap))
        return invalid("logits_soft_cap is %g: must be finite and >= 0", double(desc.logits_soft_cap));
    s.soft_cap = desc.logits_soft_cap;
    QUIRE_TRY(check_range("page_size", desc.page_size, 0, kMaxPageSize));
    s.page_size = desc.page_size;
    QUIRE_TRY(check_range("precision", desc.precision, QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_MEDIUM));
    s.precision = desc.precision;
    *spec = s;
    return {};
}

Status check_append_desc(const quire_append_desc& desc, AppendSpec* spec) {
    AppendSpec s{};
    QUIRE_TRY(check_range("num_kv_heads", desc.num_kv_heads, 1, 1 << 20));
    s.Hk = desc.num_kv_heads;
    QUIRE_TRY(check_head_dims(desc.head_dim, desc.value_head_dim, &s.Dv));
    s.D = desc.head_dim;
    QUIRE_TRY(check_activation_type("type", desc.type));
    s.type = desc.type;
    QUIRE_TRY(check_format("key_format", desc.key_format, s.D));
    QUIRE_TRY(check_format("value_format", desc.value_format, s.Dv));
    s.key_format = plain(desc.key_format);
    s.value_format = plain(desc.value_format);
    QUIRE_TRY(check_range("page_size", desc.page_size, 0, kMaxPageSize));
    s.page_size = desc.page_size;
    *spec = s;
    return {};
}

std::vector<float> alibi_slopes(int H) {
    int power = 1;
    while (power * 2 <= H) power *= 2;
    std::vector<float> slopes;
    for (int k = 1; k <= power; ++k) slopes.push_back(float(std::exp2(-8.0 * k / power)));
    for (int k = 1; int(slopes.size()) < H; k += 2) slopes.push_back(float(std::exp2(-4.0 * k / power)));
    return slopes;
}

int64_t AttentionProblem::position(int64_t b, int64_t i) const {
    if (query_positions) return query_positions(b) + i;
    return spec->top_left ? i : keys(b) - queries(b) + i;
}

KeyRange AttentionProblem::visible(int64_t b, int64_t i) const {
    const int64_t at = position(b, i);
    KeyRange range{key_begin ? key_begin(b) : 0, key_end ? key_end(b) : keys(b)};
    if (spec->alibi || (spec->causal && b >= decoding_batches)) range.end = std::min(range.end, at + 1);
    if (spec->window_right >= 0) range.end = std::min(range.end, at + spec->window_right + 1);
    if (spec->window_left >= 0) range.begin = std::max(range.begin, at - spec->window_left);
    range.end = std::max<int64_t>(range.end, 0);
    range.begin = std::min(range.begin, range.end);
    return range;
}

ScoreTerm tensor_term(ScoreTerm::Kind kind, const quire_tensor& t) {
    ScoreTerm term;
    term.kind = kind;
    term.base = static_cast<const char*>(t.data);
    term.type = t.type;
    int64_t* strides[] = {&term.batch_stride, &term.head_stride, &term.row_stride, &term.column_stride};
    for (int i = 0; i < t.rank; ++i)
        *strides[4 - t.rank + i] = t.shape[i] > 1 ? bytes_of(t.type, t.strides[i]) : 0;
    return term;
}

namespace {

float mask_value(const ScoreTerm& term, const char* at) {
    switch (term.type) {
        case QUIRE_BOOL: return float(*at != 0);
        case QUIRE_INT32: return float(*reinterpret_cast<const int32_t*>(at));
        default: return load_number(term.type, at, 0);
    }
}

float term_value(const ScoreTerm& term, float x) {
    switch (term.kind) {
        case ScoreTerm::hide_where_zero: return x == 0 ? -INFINITY : 0.f;
        case ScoreTerm::add_where_zero: return x == 0 ? term.a : 0.f;
        case ScoreTerm::affine: return term.a * x + term.b;
        default: return x;
    }
}

void add_tree(const AttentionProblem& p, const char* words, int64_t b, int64_t begin, int64_t count, float* out,
              int64_t stride, int64_t word_stride) {
    const int64_t first_new = p.keys(b) - p.queries(b);
    for (int64_t t = std::max(begin, first_new); t < begin + count; ++t) {
        const int64_t j = t - first_new;
        const auto word = *reinterpret_cast<const uint64_t*>(words + j / 64 * word_stride);
        if (!(word >> (j % 64) & 1)) out[(t - begin) * stride] = -INFINITY;
    }
}

}  // namespace

void add_term(const AttentionProblem& p, const ScoreTerm& term, int64_t b, int64_t i, int h, int64_t begin,
              int64_t count, float* out, int64_t stride) {
    if (term.kind == ScoreTerm::add_outside) {
        for (int64_t t = begin; t < begin + count; ++t)
            if (t < (term.begin ? term.begin(b) : 0) || t >= term.end(b)) out[(t - begin) * stride] += term.a;
        return;
    }
    const char* row = term.base + b * term.batch_stride + h * term.head_stride +
                      (term.packed ? p.queries_at.begin(b) + i : i) * term.row_stride;
    if (term.kind == ScoreTerm::tree) return add_tree(p, row, b, begin, count, out, stride, term.column_stride);
    const char* at = row + (begin + (term.packed ? p.keys_at.begin(b) : 0)) * term.column_stride;
    for (int64_t j = 0; j < count; ++j, at += term.column_stride) out[j * stride] += term_value(term, mask_value(term, at));
}

Status make_attention_problem(const AttentionSpec& spec, const quire_attention_args& args,
                              AttentionProblem* problem) {
    *problem = AttentionProblem();
    AttentionProblem& p = *problem;
    p.spec = &spec;
    QUIRE_TRY(check_queries(args, &p));
    QUIRE_TRY(check_keys(args, &p));
    QUIRE_TRY(check_key_ranges(args, &p));
    QUIRE_TRY(check_mask(args.attn_mask, &p));
    QUIRE_TRY(check_tree_mask(args.tree_mask, &p));
    if (args.sinks != nullptr) {
        QUIRE_TRY(check_tensor("sinks", args.sinks, QUIRE_F32, "[H]", {spec.H}));
        p.sinks = static_cast<const float*>(args.sinks->data);
        p.sink_stride = args.sinks->strides[0];
    }
    QUIRE_TRY(check_range("decoding_batches", args.decoding_batches, 0, p.B));
    p.decoding_batches = args.decoding_batches;
    return check_outputs(args, &p);
}

Status make_append_problem(const AppendSpec& spec, const quire_append_args& args, AppendProblem* problem) {
    *problem = AppendProblem();
    AppendProblem& p = *problem;
    p.spec = &spec;
    QUIRE_TRY(check_rows("new_key", args.new_key, spec.type, "[n, Hk, D]", {kAny, spec.Hk, spec.D}, &p.new_key));
    p.n = args.new_key->shape[0];
    QUIRE_TRY(check_rows("new_value", args.new_value, spec.type, "[n, Hk, Dv]", {p.n, spec.Hk, spec.Dv}, &p.new_value));
    Lead lead{kAny};
    int64_t max_pages = 0;
    const CacheTensors tensors{args.key, args.value, args.key_scale, args.value_scale};
    QUIRE_TRY(check_cache(tensors, spec.key_format, spec.value_format, spec.Hk, spec.D, spec.Dv, &lead, &p.cache));
    p.queries_at.uniform = p.n;
    QUIRE_TRY(check_sequences(args.seqstarts, p.n, &p.queries_at.given, &p.B));
    const int64_t slots = lead[0];
    if (p.B == 1 && args.start_pos != nullptr && args.start_pos->rank == 0)
        QUIRE_TRY(check_index("start_pos", args.start_pos, "[]", {}, &p.start_pos));
    else
        QUIRE_TRY(check_index("start_pos", args.start_pos, "[B]", {p.B}, &p.start_pos));
    QUIRE_TRY(check_cachestarts(args.cachestarts, p.B, spec.page_size, &max_pages, &p.cache));
    for (int64_t b = 0; b < p.B; ++b) {
        const int64_t start = p.start_pos(b), count = p.queries_at.length(b);
        if (start < 0) return invalid("start_pos[%lld] is %lld: must be >= 0", (long long)b, (long long)start);
        int64_t keys;
        if (__builtin_add_overflow(start, count, &keys))
            return invalid("start_pos[%lld] is %lld: is too large", (long long)b, (long long)start);
        QUIRE_TRY(check_positions(p.cache, max_pages, b, count == 0 ? 0 : keys, slots));
    }
    return {};
}

}  // namespace quire
