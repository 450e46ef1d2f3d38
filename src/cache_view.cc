#include "src/cache_view.h"

#include <algorithm>

namespace quire {
namespace {

Shape with(Shape lead, int64_t heads, int64_t last) {
    lead.push_back(heads);
    lead.push_back(last);
    return lead;
}

// `lead`: {slots}, or {B, T}. `rows`: of the codes.
Status check_scales(const char* name, const quire_tensor* tensor, const quire_format& format,
                    const Shape& lead, int Hk, int dim, const RowView& rows, RowView* view) {
    if (!is_quantised(format)) {
        if (tensor != nullptr)
            return invalid("%s is given: must be NULL where the format is %s", name, type_name(format.type));
        *view = block_info(format.type) ? rows : RowView{};  // blocks hold their scales
        return {};
    }
    return check_rows(name, tensor, format.scale_type,
                      lead.rank() == 2 ? "[B, T, Hk, D / quant_group]" : "[slots, Hk, D / quant_group]",
                      with(lead, Hk, dim / format.quant_group), view);
}

Status check_row_range(const char* name, int64_t begin, int64_t count, int64_t slots) {
    if (count > slots)
        return invalid("%s is %lld: its %lld rows must lie in the cache's %lld slots", name, (long long)begin,
                       (long long)count, (long long)slots);
    if (begin < 0 || begin > slots - count)
        return invalid("%s is %lld: must be 0 to %lld, so that its %lld rows lie in the cache's %lld slots",
                       name, (long long)begin, (long long)(slots - count), (long long)count,
                       (long long)slots);
    return {};
}

}  // namespace

Status check_cache(const CacheTensors& t, const CacheSpec& spec, int64_t B, CacheView* cache) {
    cache->batched = t.key != nullptr && t.key->rank == 4;
    const bool batched = cache->batched;
    Shape lead = batched ? Shape{B, kAny} : Shape{kAny};
    QUIRE_TRY(check_rows("key", t.key, spec.key_format.type, batched ? "[B, T, Hk, D]" : "[slots, Hk, D]",
                         with(lead, spec.Hk, spec.D), &cache->key));
    const int rows = lead.rank() - 1;
    lead[rows] = cache->slots = t.key->shape[rows];
    QUIRE_TRY(check_rows("value", t.value, spec.value_format.type,
                         batched ? "[B, T, Hk, Dv]" : "[slots, Hk, Dv]", with(lead, spec.Hk, spec.Dv),
                         &cache->value));
    QUIRE_TRY(check_scales("key_scale", t.key_scale, spec.key_format, lead, spec.Hk, spec.D, cache->key,
                           &cache->key_scale));
    QUIRE_TRY(check_scales("value_scale", t.value_scale, spec.value_format, lead, spec.Hk, spec.Dv,
                           cache->value, &cache->value_scale));
    if (!batched) return {};
    if (t.cachestarts != nullptr)
        return invalid("cachestarts is given: must be NULL with a key [B, T, Hk, D]");
    if (spec.page_size != 0) return invalid("key has rank 4: must be [slots, Hk, D] with a page_size");
    return {};
}

Status check_cachestarts(const quire_tensor* cachestarts, int64_t B, int64_t page_size, CacheView* cache) {
    cache->page_size = page_size;
    if (page_size == 0) return check_index("cachestarts", cachestarts, "[B]", {B}, &cache->starts);
    QUIRE_TRY(check_index("cachestarts", cachestarts, "[B, MaxP]", {B, kAny}, &cache->starts));
    cache->max_pages = cachestarts->shape[1];
    return {};
}

Status check_positions(const CacheView& cache, int64_t b, int64_t keys) {
    // Names are only spelled out when they are needed.
    const auto bad = [&](int64_t start, int64_t rows) { return start < 0 || start > cache.slots - rows; };
    if (keys == 0) return {};
    if (cache.page_size == 0) {
        const int64_t start = cache.starts(b);
        if (!bad(start, keys)) return {};
        return check_row_range(("cachestarts[" + std::to_string(b) + "]").c_str(), start, keys, cache.slots);
    }
    const int64_t pages = (keys - 1) / cache.page_size + 1;
    if (pages > cache.max_pages)
        return invalid("cachestarts has %lld pages a sequence: sequence %lld needs %lld for %lld positions",
                       (long long)cache.max_pages, (long long)b, (long long)pages, (long long)keys);
    for (int64_t p = 0; p < pages; ++p) {
        const int64_t start = cache.starts(b, p),
                      used = std::min(cache.page_size, keys - p * cache.page_size);
        if (bad(start, used))
            return check_row_range(
                ("cachestarts[" + std::to_string(b) + ", " + std::to_string(p) + "]").c_str(), start, used,
                cache.slots);
    }
    return {};
}

}  // namespace quire
