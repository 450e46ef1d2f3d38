#include "src/ops/pmx_common.h"

namespace quire {
namespace {

constexpr PmxLayout kDynamicLayouts[] = {
    {5, -1, 0, 1, 2, 3, "(MaxT, L, 2, Hk, D)", "(MaxT, L, 2, Hk, D / quant_group)"},
    {5, -1, 1, 0, 2, 3, "(L, MaxT, 2, Hk, D)", "(L, MaxT, 2, Hk, D / quant_group)"},
    {5, -1, 2, 0, 1, 3, "(L, 2, MaxT, Hk, D)", "(L, 2, MaxT, Hk, D / quant_group)"},
    {5, -1, 3, 0, 1, 2, "(L, 2, Hk, MaxT, D)", "(L, 2, Hk, MaxT, D / quant_group)"}};
constexpr PmxLayout kFixedLayouts[] = {
    {6, 0, 3, 1, 2, 4, "(MaxB, L, 2, MaxS, Hk, D)", "(MaxB, L, 2, MaxS, Hk, D / quant_group)"},
    {6, 1, 4, 0, 2, 3, "(L, MaxB, 2, Hk, MaxS, D)", "(L, MaxB, 2, Hk, MaxS, D / quant_group)"}};

Status check_quantisation(const PmxCacheAttributes& a, quire_type type, int head_dim, quire_format* format) {
    if (a.quant_bit != 0 && a.quant_bit != 8 && a.quant_bit != 4)
        return invalid("quant_bit is %d: must be 0, 8 or 4", a.quant_bit);
    const quire_type coded = a.quant_bit == 8 ? QUIRE_INT8 : a.quant_bit == 4 ? QUIRE_INT4 : type;
    const quire_type stored = a.cache_type == QUIRE_NONE ? coded : a.cache_type;
    *format = {stored, 0, QUIRE_NONE};
    if (a.quant_bit == 0) {
        if (stored != QUIRE_F32 && stored != QUIRE_F16)
            return invalid("cache_type is %s: must be f32 or f16 where quant_bit is 0",
                           type_text(stored).c_str());
        return {};
    }
    if (stored != coded)
        return invalid("cache_type is %s: must be %s where quant_bit is %d", type_text(stored).c_str(),
                       type_name(coded), a.quant_bit);
    if (a.quant_bit == 4 && head_dim % 2 != 0)
        return invalid("head_dim is %d: must be even where quant_bit is 4", head_dim);
    if (a.quant_group < 1 || head_dim % a.quant_group != 0)
        return invalid("quant_group is %d: must divide head_dim, %d", a.quant_group, head_dim);
    const quire_type scales = a.scale_type == QUIRE_NONE ? type : a.scale_type;
    if (scales != QUIRE_F32 && scales != QUIRE_F16)
        return invalid("scale_type is %s: must be f32 or f16", type_text(scales).c_str());
    *format = {stored, a.quant_group, scales};
    return {};
}

// `tokens`: rows in the dimension of tokens, and `batch` in that of sequences, or kAny.
Status check_layers(const char* name, const char* letters, const quire_tensor* tensor,
                    const PmxCacheSpec& pmx, quire_type type, int64_t batch, int64_t tokens, int Hk,
                    int64_t last) {
    const PmxLayout& at = *pmx.layout;
    Shape shape{};
    for (int i = 0; i < at.rank; ++i) shape.push_back(2);
    if (at.batch >= 0) shape[at.batch] = batch;
    shape[at.token] = tokens;
    shape[at.layer] = pmx.num_layer;
    shape[at.head] = Hk;
    shape[at.rank - 1] = last;
    QUIRE_TRY(check_tensor(name, tensor, type, letters, shape));
    QUIRE_TRY(check_contiguous(name, *tensor));
    return check_written(name, *tensor);
}

// Keys (part 0) or values (part 1) of the layer: [MaxT, Hk, last] or [MaxB, MaxS, Hk, last].
quire_tensor layer_rows(const PmxCacheSpec& pmx, const quire_tensor& all, int part) {
    const PmxLayout& at = *pmx.layout;
    quire_tensor rows = {};
    rows.data = all.data;
    rows.type = all.type;
    for (int from : {at.batch, at.token, at.head, at.rank - 1}) {
        if (from < 0) continue;
        rows.shape[rows.rank] = all.shape[from];
        rows.strides[rows.rank++] = all.strides[from];
    }
    if (is_empty(rows)) return rows;  // its strides and data mean nothing
    const int64_t layer = pmx.layer_idx > 0 ? pmx.layer_idx * all.strides[at.layer] : 0;
    rows.data = static_cast<char*>(all.data) + bytes_of(all.type, layer + part * all.strides[at.part]);
    return rows;
}

}  // namespace

Status check_pmx_type(const char* name, quire_type type) {
    if (type == QUIRE_F32 || type == QUIRE_F16) return {};
    return invalid("%s is %s: must be f32 or f16", name, type_text(type).c_str());
}

Status check_pmx_cache(const PmxCacheAttributes& a, PmxDomain domain, quire_type type, int Hk, int head_dim,
                       PmxCacheSpec* pmx, CacheSpec* rows) {
    const bool dynamic = domain == PmxDomain::dynamic;
    QUIRE_TRY(check_range("head_dim", head_dim, 1, kMostHeadDim));
    quire_format format = {};
    QUIRE_TRY(check_quantisation(a, type, head_dim, &format));
    QUIRE_TRY(check_range("num_layer", a.num_layer, 1, 1 << 20));
    QUIRE_TRY(check_range("layer_idx", a.layer_idx, 0, a.num_layer - 1));
    QUIRE_TRY(check_range("cache_layout", a.cache_layout, 0, dynamic ? 3 : 1));
    *pmx = {a.num_layer, a.layer_idx, (dynamic ? kDynamicLayouts : kFixedLayouts) + a.cache_layout};
    *rows = {Hk, head_dim, head_dim, format, format, 0};
    return {};
}

Status check_pmx_paging(int cache_mode, int page_size, CacheSpec* rows) {
    QUIRE_TRY(check_range("cache_mode", cache_mode, 0, 1));
    if (cache_mode == 0) return {};
    rows->page_size = page_size;
    return check_range("page_size", page_size, 1, 1 << 30);
}

Status plan_pmx_cache_attention(AttentionSpec spec, const CacheSpec& rows, quire_plan* plan) {
    static_cast<CacheSpec&>(spec) = rows;
    QUIRE_TRY(plan_append("append", {rows, spec.type, {}, {}}, plan));
    return plan_attention(spec, plan);
}

Status plan_pmx_key_value_cache(const CacheSpec& rows, quire_type type, int num_repeat, quire_plan* plan) {
    QUIRE_TRY(check_range("num_repeat", num_repeat, 1, (1 << 20) / rows.Hk));
    QUIRE_TRY(plan_append("append", {rows, type, {}, {}}, plan));
    return plan_read({rows, type, num_repeat}, plan);
}

Status PmxCacheViews::make(const PmxCacheSpec& pmx, const CacheSpec& rows, const quire_tensor* cache,
                           const quire_tensor* scale) {
    const quire_format& format = rows.key_format;
    QUIRE_TRY(
        check_layers("cache", pmx.layout->cache_shape, cache, pmx, format.type, kAny, kAny, rows.Hk, rows.D));
    key_ = layer_rows(pmx, *cache, 0);
    value_ = layer_rows(pmx, *cache, 1);
    quantised_ = is_quantised(format);
    if (!quantised_) {
        if (scale != nullptr) return invalid("scale is given: must be NULL where quant_bit is 0");
        return {};
    }
    const int64_t batch = pmx.layout->batch < 0 ? kAny : cache->shape[pmx.layout->batch];
    QUIRE_TRY(check_layers("scale", pmx.layout->scale_shape, scale, pmx, format.scale_type, batch,
                           cache->shape[pmx.layout->token], rows.Hk, rows.D / format.quant_group));
    key_scale_ = layer_rows(pmx, *scale, 0);
    value_scale_ = layer_rows(pmx, *scale, 1);
    return {};
}

void PmxCacheViews::narrow(int64_t B, int64_t T) {
    for (quire_tensor* t : {&key_, &value_, &key_scale_, &value_scale_}) {
        t->shape[0] = B;
        t->shape[1] = T;
    }
}

CacheTensors PmxCacheViews::tensors() const {
    return {&key_, &value_, quantised_ ? &key_scale_ : nullptr, quantised_ ? &value_scale_ : nullptr,
            nullptr};
}

Status check_pmx_heads(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                       const Shape& shape) {
    RowView view;
    return check_rows(name, tensor, type, letters, shape, &view);
}

Status check_pmx_mask_type(const quire_tensor* attn_mask, quire_type type) {
    if (attn_mask == nullptr || attn_mask->type == type) return {};
    return invalid("attn_mask has type %s: must be the query's, %s", type_text(attn_mask->type).c_str(),
                   type_name(type));
}

}  // namespace quire
