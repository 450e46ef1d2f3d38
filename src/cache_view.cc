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
        const bool inside = block_info(format.type) || token_block_info(format.type);
        *view = inside ? rows : RowView{};  // blocks hold their scales
        return {};
    }
    return check_rows(name, tensor, format.scale_type,
                      lead.rank() == 2 ? "[B, T, Hk, D / quant_group]" : "[slots, Hk, D / quant_group]",
                      with(lead, Hk, dim / format.quant_group), view);
}

// Rows of [slots, Hk, dim], or blocks of rows. lead: {slots} or {B, T}, with kAny for what is not known yet.
Status check_side(const char* name, const quire_tensor* tensor, const quire_format& format, Shape lead,
                  int Hk, int dim, const char* letters, CacheView* cache, RowView* view) {
    const bool batched = lead.rank() == 2;
    if (!token_block_info(format.type))
        return check_rows(name, tensor, format.type, letters, with(lead, Hk, dim), view);
    int64_t& slots = lead[lead.rank() - 1];
    if (slots != kAny && slots % kBlockTokens != 0)
        return invalid("key has %lld rows: must have a multiple of %d beside a value of %s", (long long)slots,
                       kBlockTokens, type_name(format.type));
    if (slots != kAny) slots /= kBlockTokens;
    QUIRE_TRY(
        check_rows(name, tensor, format.type,
                   batched ? "[B, T / 16, Hk, quire_block_bytes]" : "[slots / 16, Hk, quire_block_bytes]",
                   with(lead, Hk, block_bytes(format, dim)), view));
    view->block_shift = 4;
    static_assert(kBlockTokens == 1 << 4);
    cache->blocks = format.type;
    return {};
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

bool is_adjacent(const RowView& rows, const RowView& scales, const quire_format& format, int dim) {
    if (token_block_info(format.type) || rows.row_stride != bytes_of(format.type, dim)) return false;
    return !is_quantised(format) ||
           scales.row_stride == bytes_of(format.scale_type, dim / format.quant_group);
}

}  // namespace

Status check_cache(const CacheTensors& t, const CacheSpec& spec, int64_t B, CacheView* cache) {
    cache->batched = t.key != nullptr && t.key->rank == 4;
    const bool batched = cache->batched;
    Shape lead = batched ? Shape{B, kAny} : Shape{kAny};
    cache->blocks = QUIRE_NONE;
    QUIRE_TRY(check_side("key", t.key, spec.key_format, lead, spec.Hk, spec.D,
                         batched ? "[B, T, Hk, D]" : "[slots, Hk, D]", cache, &cache->key));
    const int rows = lead.rank() - 1;
    if (__builtin_mul_overflow(t.key->shape[rows], int64_t(tokens_of_block(spec.key_format)), &cache->slots))
        return invalid("key has shape %s: its tokens must fit in 63 bits", shape_text(*t.key).c_str());
    lead[rows] = cache->slots;
    QUIRE_TRY(check_side("value", t.value, spec.value_format, lead, spec.Hk, spec.Dv,
                         batched ? "[B, T, Hk, Dv]" : "[slots, Hk, Dv]", cache, &cache->value));
    QUIRE_TRY(check_scales("key_scale", t.key_scale, spec.key_format, lead, spec.Hk, spec.D, cache->key,
                           &cache->key_scale));
    QUIRE_TRY(check_scales("value_scale", t.value_scale, spec.value_format, lead, spec.Hk, spec.Dv,
                           cache->value, &cache->value_scale));
    cache->adjacent = is_adjacent(cache->key, cache->key_scale, spec.key_format, spec.D) &&
                      is_adjacent(cache->value, cache->value_scale, spec.value_format, spec.Dv);
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

Status check_block_start(const char* name, int64_t start, const CacheView& cache) {
    if (!cache.blocks || start % kBlockTokens == 0) return {};
    return invalid("%s is %lld: must be a multiple of %d for %s", name, (long long)start, kBlockTokens,
                   type_name(cache.blocks));
}

Status check_positions(const CacheView& cache, int64_t b, int64_t keys) {
    // Names are only spelled out when they are needed.
    const auto bad = [&](int64_t start, int64_t rows) {
        return start < 0 || start > cache.slots - rows || (cache.blocks && start % kBlockTokens != 0);
    };
    if (keys == 0) return {};
    if (cache.page_size == 0) {
        const int64_t start = cache.starts(b);
        if (!bad(start, keys)) return {};
        const std::string name = "cachestarts[" + std::to_string(b) + "]";
        QUIRE_TRY(check_row_range(name.c_str(), start, keys, cache.slots));
        return check_block_start(name.c_str(), start, cache);
    }
    const int64_t pages = (keys - 1) / cache.page_size + 1;
    if (pages > cache.max_pages)
        return invalid("cachestarts has %lld pages a sequence: sequence %lld needs %lld for %lld positions",
                       (long long)cache.max_pages, (long long)b, (long long)pages, (long long)keys);
    for (int64_t p = 0; p < pages; ++p) {
        const int64_t start = cache.starts(b, p),
                      used = std::min(cache.page_size, keys - p * cache.page_size);
        if (!bad(start, used)) continue;
        const std::string name = "cachestarts[" + std::to_string(b) + ", " + std::to_string(p) + "]";
        QUIRE_TRY(check_row_range(name.c_str(), start, used, cache.slots));
        return check_block_start(name.c_str(), start, cache);
    }
    return {};
}

}  // namespace quire
