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

RowView row_view(const quire_tensor& t) {
    return {static_cast<char*>(t.data), t.shape[0] > 1 ? bytes_of(t.type, t.strides[0]) : 0,
            t.shape[1] > 1 ? bytes_of(t.type, t.strides[1]) : 0};
}

// Rows of one head: the last dimension is contiguous, and int4 rows begin at whole bytes.
Status check_rows(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                  const std::vector<int64_t>& shape, RowView* view) {
    QUIRE_TRY(check_tensor(name, tensor, type, letters, shape));
    if (tensor->shape[2] > 1 && tensor->strides[2] != 1)
        return invalid("%s has stride %lld in its last dimension: must be 1", name, (long long)tensor->strides[2]);
    if (type == QUIRE_INT4)
        for (int i = 0; i < 2; ++i)
            if (tensor->shape[i] > 1 && tensor->strides[i] % 2 != 0)
                return invalid("%s has stride %lld in dimension %d: must be even for int4", name,
                               (long long)tensor->strides[i], i);
    *view = row_view(*tensor);
    return {};
}

struct CacheTensors {
    const quire_tensor *key, *value, *key_scale, *value_scale;
};

Status check_scales(const char* name, const quire_tensor* tensor, const quire_format& format, int64_t slots, int Hk,
                    int dim, RowView* view) {
    if (!is_quantised(format)) {
        if (tensor != nullptr) return invalid("%s is given: must be NULL where the format is %s", name, type_name(format.type));
        return {};
    }
    return check_rows(name, tensor, format.scale_type, "[slots, Hk, D / quant_group]",
                      {slots, Hk, dim / format.quant_group}, view);
}

Status check_cache(const CacheTensors& t, const quire_format& key_format, const quire_format& value_format, int Hk,
                   int D, int Dv, int64_t* slots, CacheView* cache) {
    QUIRE_TRY(check_rows("key", t.key, key_format.type, "[slots, Hk, D]", {kAny, Hk, D}, &cache->key));
    *slots = t.key->shape[0];
    QUIRE_TRY(check_rows("value", t.value, value_format.type, "[slots, Hk, Dv]", {*slots, Hk, Dv}, &cache->value));
    QUIRE_TRY(check_scales("key_scale", t.key_scale, key_format, *slots, Hk, D, &cache->key_scale));
    return check_scales("value_scale", t.value_scale, value_format, *slots, Hk, Dv, &cache->value_scale);
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

Status check_mask(const quire_tensor* tensor, int H, int64_t n, int64_t columns, MaskView* mask) {
    if (tensor == nullptr) return {};
    if (tensor->type != QUIRE_F32 && tensor->type != QUIRE_F16)
        return invalid("attn_mask has type %s: must be f32 or f16", type_name(tensor->type));
    if (tensor->rank == 2) {
        QUIRE_TRY(check_tensor("attn_mask", tensor, tensor->type, "[n, >= kvstarts[B]]", {n, kAny}));
    } else {
        QUIRE_TRY(check_tensor("attn_mask", tensor, tensor->type, "[H or 1, n, >= kvstarts[B]]", {kAny, n, kAny}));
        if (tensor->shape[0] != H && tensor->shape[0] != 1)
            return invalid("attn_mask has shape %s: its first dimension must be 1 or num_heads, %d",
                           shape_text(*tensor).c_str(), H);
    }
    const int last = tensor->rank - 1;
    if (tensor->shape[last] < columns)
        return invalid("attn_mask has %lld columns: must have at least kvstarts[B], %lld",
                       (long long)tensor->shape[last], (long long)columns);
    if (n == 0 || columns == 0) return {};
    mask->base = static_cast<const char*>(tensor->data);
    mask->type = tensor->type;
    mask->column_stride = bytes_of(tensor->type, tensor->strides[last]);
    mask->row_stride = bytes_of(tensor->type, tensor->strides[last - 1]);
    if (tensor->rank == 3 && tensor->shape[0] > 1) mask->head_stride = bytes_of(tensor->type, tensor->strides[0]);
    return {};
}

// seqstarts, or one sequence of all n tokens.
Status check_sequences(const quire_tensor* tensor, int64_t n, int64_t* whole, IndexView* view, int64_t* B) {
    if (tensor == nullptr) {
        whole[0] = 0;
        whole[1] = n;
        *view = {whole, 1, 0};
        *B = 1;
        return {};
    }
    QUIRE_TRY(check_tensor("seqstarts", tensor, QUIRE_INT64, "[B + 1]", {kAny}));
    *B = tensor->shape[0] - 1;
    if (*B < 0) return invalid("seqstarts has shape [0]: must be [B + 1]");
    return check_starts("seqstarts", tensor, *B, n, view);
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

KeyRange AttentionProblem::visible(int64_t b, int64_t i) const {
    const int64_t T = keys(b), position = T - queries(b) + i;
    KeyRange range{0, T};
    if (spec->alibi || (spec->causal && b >= decoding_batches)) range.end = std::min(range.end, position + 1);
    if (spec->window_right >= 0) range.end = std::min(range.end, position + spec->window_right + 1);
    if (spec->window_left >= 0) range.begin = std::max<int64_t>(0, position - spec->window_left);
    range.end = std::max<int64_t>(range.end, 0);
    range.begin = std::min(range.begin, range.end);
    return range;
}

float AttentionProblem::mask_at(int h, int64_t row, int64_t b, int64_t t) const {
    const char* at = mask.base + h * mask.head_stride + row * mask.row_stride + (kvstarts(b) + t) * mask.column_stride;
    return load_number(mask.type, at, 0);
}

Status make_attention_problem(const AttentionSpec& spec, const quire_attention_args& args,
                              AttentionProblem* problem) {
    *problem = AttentionProblem();  // in place: views may point into it
    AttentionProblem& p = *problem;
    p.spec = &spec;
    QUIRE_TRY(check_rows("query", args.query, spec.type, "[n, H, D]", {kAny, spec.H, spec.D}, &p.query));
    p.n = args.query->shape[0];
    int64_t slots = 0, max_pages = 0;
    const CacheTensors tensors{args.key, args.value, args.key_scale, args.value_scale};
    QUIRE_TRY(check_cache(tensors, spec.key_format, spec.value_format, spec.Hk, spec.D, spec.Dv, &slots, &p.cache));
    QUIRE_TRY(check_sequences(args.seqstarts, p.n, p.whole, &p.seqstarts, &p.B));

    if (args.kvstarts == nullptr) {
        if (p.B != 1) return invalid("kvstarts is NULL: must be given for %lld sequences", (long long)p.B);
        if (args.cachestarts != nullptr) return invalid("kvstarts is NULL: must be given with cachestarts");
        p.whole[2] = 0;
        p.whole[3] = slots;
        p.kvstarts = {p.whole + 2, 1, 0};
    } else {
        QUIRE_TRY(check_starts("kvstarts", args.kvstarts, p.B, kAny, &p.kvstarts));
    }
    if (args.cachestarts == nullptr) {
        if (spec.page_size != 0) return invalid("cachestarts is NULL: must be given with a page_size");
        if (p.kvstarts(p.B) > slots)
            return invalid("kvstarts[%lld] is %lld: must be at most the rows of key, %lld", (long long)p.B,
                           (long long)p.kvstarts(p.B), (long long)slots);
        p.cache.starts = p.kvstarts;
    } else {
        QUIRE_TRY(check_cachestarts(args.cachestarts, p.B, spec.page_size, &max_pages, &p.cache));
        for (int64_t b = 0; b < p.B; ++b)
            QUIRE_TRY(check_positions(p.cache, max_pages, b, p.keys(b), slots));
    }
    QUIRE_TRY(check_mask(args.attn_mask, spec.H, p.n, p.kvstarts(p.B), &p.mask));
    if (args.sinks != nullptr) {
        QUIRE_TRY(check_tensor("sinks", args.sinks, QUIRE_F32, "[H]", {spec.H}));
        p.sinks = static_cast<const float*>(args.sinks->data);
        p.sink_stride = args.sinks->strides[0];
    }
    QUIRE_TRY(check_range("decoding_batches", args.decoding_batches, 0, p.B));
    p.decoding_batches = args.decoding_batches;
    QUIRE_TRY(check_rows("output", args.output, spec.type, "[n, H, Dv]", {p.n, spec.H, spec.Dv}, &p.output));
    if (args.lse != nullptr) {
        QUIRE_TRY(check_tensor("lse", args.lse, QUIRE_F32, "[n, H]", {p.n, spec.H}));
        p.lse = row_view(*args.lse);
    }
    return {};
}

Status make_append_problem(const AppendSpec& spec, const quire_append_args& args, AppendProblem* problem) {
    *problem = AppendProblem();
    AppendProblem& p = *problem;
    p.spec = &spec;
    QUIRE_TRY(check_rows("new_key", args.new_key, spec.type, "[n, Hk, D]", {kAny, spec.Hk, spec.D}, &p.new_key));
    p.n = args.new_key->shape[0];
    QUIRE_TRY(check_rows("new_value", args.new_value, spec.type, "[n, Hk, Dv]", {p.n, spec.Hk, spec.Dv}, &p.new_value));
    int64_t slots = 0, max_pages = 0;
    const CacheTensors tensors{args.key, args.value, args.key_scale, args.value_scale};
    QUIRE_TRY(check_cache(tensors, spec.key_format, spec.value_format, spec.Hk, spec.D, spec.Dv, &slots, &p.cache));
    QUIRE_TRY(check_sequences(args.seqstarts, p.n, p.whole, &p.seqstarts, &p.B));
    if (p.B == 1 && args.start_pos != nullptr && args.start_pos->rank == 0)
        QUIRE_TRY(check_index("start_pos", args.start_pos, "[]", {}, &p.start_pos));
    else
        QUIRE_TRY(check_index("start_pos", args.start_pos, "[B]", {p.B}, &p.start_pos));
    QUIRE_TRY(check_cachestarts(args.cachestarts, p.B, spec.page_size, &max_pages, &p.cache));
    for (int64_t b = 0; b < p.B; ++b) {
        const int64_t start = p.start_pos(b), count = p.seqstarts(b + 1) - p.seqstarts(b);
        if (start < 0) return invalid("start_pos[%lld] is %lld: must be >= 0", (long long)b, (long long)start);
        int64_t keys;
        if (__builtin_add_overflow(start, count, &keys))
            return invalid("start_pos[%lld] is %lld: is too large", (long long)b, (long long)start);
        QUIRE_TRY(check_positions(p.cache, max_pages, b, count == 0 ? 0 : keys, slots));
    }
    return {};
}

}  // namespace quire
