#include "bench/cache.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "bench/limits.h"

namespace bench {
namespace {

// One random element, made of bits: magnitudes from 2^-3 to 2 with either sign, never Inf or NaN.
uint32_t random_element(quire_type type, uint32_t r) {
    switch (type) {
        case QUIRE_F32: return (r & 0x81ffffff) | 0x3e000000;  // exponent field 124 to 127
        case QUIRE_F16: return (r & 0x8fff) | 0x3000;          // 12 to 15
        case QUIRE_BF16: return (r & 0x81ff) | 0x3e00;         // 124 to 127
        case QUIRE_INT8: return (r & 0xff) == 0x80 ? 0x81 : r & 0xff;
        default: {
            const uint32_t low = r & 0xf, high = r & 0xf0;
            return (low == 0x8 ? 0x9 : low) | (high == 0x80 ? 0x90 : high);
        }
    }
}

// float16 scales that bring the largest code to about 2.
uint16_t random_scale(quire_type type, uint32_t r) {
    return uint16_t((r & 0x3ff) | (type == QUIRE_INT8 ? 8 << 10 : 12 << 10));
}

// Repeats a random block: as good as random for a kernel, and filled at memory speed. The length is no
// multiple of a row, so that rows differ.
template <class T, class Make>
void fill(void* memory, size_t bytes, Make make) {
    std::mt19937 random(1);
    std::vector<T> block(std::min<size_t>((1 << 20) - 3, bytes / sizeof(T) + 1));
    for (T& x : block) x = T(make(random()));
    const size_t block_bytes = block.size() * sizeof(T);
    for (size_t at = 0; at < bytes; at += block_bytes) {
        std::memcpy(static_cast<char*>(memory) + at, block.data(), std::min(block_bytes, bytes - at));
    }
}

// Blocks of random codes and small scales (and minima: the same bits in every format that has none are
// codes).
void fill_blocks(quire_type type, void* memory, size_t bytes) {
    const size_t block_bytes = size_t(quire_bytes_of(type, 32));
    std::mt19937 random(1);
    std::vector<uint8_t> blocks(block_bytes * std::min<size_t>(32771, bytes / block_bytes + 1));
    for (uint8_t& x : blocks) x = uint8_t(random());
    for (size_t at = 0; at < blocks.size(); at += block_bytes)
        for (size_t i = 0; i < 2; ++i) {
            const uint16_t scale = random_scale(type == QUIRE_Q8_0 ? QUIRE_INT8 : QUIRE_INT4, random());
            std::memcpy(&blocks[at + 2 * i], &scale, sizeof scale);
        }
    for (size_t at = 0; at < bytes; at += blocks.size())
        std::memcpy(static_cast<char*>(memory) + at, blocks.data(), std::min(blocks.size(), bytes - at));
}

// Blocks of 16 tokens: random codes, then scales.
void fill_token_blocks(const Workload& w, void* memory, size_t bytes) {
    const size_t block_bytes = size_t(w.row_bytes(w.stored_dim()) * kBlockTokens),
                 scales = size_t(w.stored_dim() / w.cache.quant_group * kBlockTokens);
    std::mt19937 random(1);
    std::vector<uint8_t> blocks(block_bytes * std::min<size_t>(1021, bytes / block_bytes));
    for (uint8_t& x : blocks) x = uint8_t(random());
    for (size_t end = block_bytes; end <= blocks.size(); end += block_bytes)
        for (size_t i = 0; i < scales; ++i) {
            const uint16_t scale =
                random_scale(w.cache.type == QUIRE_INT8_B16 ? QUIRE_INT8 : QUIRE_INT4, random());
            std::memcpy(&blocks[end - 2 * (scales - i)], &scale, sizeof scale);
        }
    for (size_t at = 0; at < bytes; at += blocks.size())
        std::memcpy(static_cast<char*>(memory) + at, blocks.data(), std::min(blocks.size(), bytes - at));
}

void fill_values(quire_type type, void* memory, size_t bytes) {
    const auto element = [type](uint32_t r) { return random_element(type, r); };
    switch (type) {
        case QUIRE_F32: return fill<uint32_t>(memory, bytes, element);
        case QUIRE_F16:
        case QUIRE_BF16: return fill<uint16_t>(memory, bytes, element);
        case QUIRE_INT8:
        case QUIRE_INT4: return fill<uint8_t>(memory, bytes, element);
        default: return fill_blocks(type, memory, bytes);
    }
}

void fill_scales(const quire_format& format, void* memory, size_t bytes) {
    const auto half = [&](uint32_t r) { return random_scale(format.type, r); };
    // The same magnitudes: 2^-7 to 2^-6 under int8, 2^-3 to 2^-2 under int4.
    const uint32_t exponent = format.type == QUIRE_INT8 ? 120 : 124;
    const auto single = [&](uint32_t r) { return (r & 0x7fffff) | exponent << 23; };
    if (format.scale_type == QUIRE_F32)
        fill<uint32_t>(memory, bytes, single);
    else
        fill<uint16_t>(memory, bytes, half);
}

struct Strides {
    int64_t slot, layer, which, head;
};

// PMX's layouts of a cache: 0 (MaxT, L, 2, Hk, width), 1 (L, MaxT, 2, Hk, width), 2 (L, 2, MaxT, Hk, width),
// 3 (L, 2, Hk, MaxT, width); and whole pages, 4 (L, MaxP, 2, Hk, P, width), where the rows of a layer's
// tensor overlap those of the next head. 1 in place of the 2 where there are keys alone.
Strides strides_of(const Workload& w, int64_t slots, int64_t page, int64_t layers, int64_t width) {
    const int64_t planes = w.planes(), heads = w.kv_heads * width, gap = w.gap * width;
    const int64_t both = planes * heads + gap, one = heads + gap;
    switch (w.layout) {
        case 0: return {layers * planes * heads + gap, planes * heads, heads, width};
        case 1: return {both, slots * both, heads, width};
        case 2: return {one, planes * slots * one, slots * one, width};
        case kWholePages: return {width, planes * slots * heads, page * heads, page * width};
        default: return {width, planes * slots * heads, slots * heads, slots * width};
    }
}

}  // namespace

PagedCache::PagedCache(const Workload& w) : w_(w), layers_(w.layers()) {
    const int64_t unit = w.in_blocks() ? kBlockTokens : 1;
    page_ = ((w.page_size ? w.page_size : w.kv_len) + unit - 1) / unit * unit;
    slots_ = w.batch * w.pages() * page_;
    const int64_t rows = slots_ * (w.kv_heads + w.gap) * w.planes() * layers_;
    values_bytes_ = size_t(w.in_blocks() ? rows * w.row_bytes(w.stored_dim())
                                         : quire_bytes_of(w.cache.type, rows * w.stored_dim()));
    values_ = allocate_huge(values_bytes_);
    w.in_blocks() ? fill_token_blocks(w, values_, values_bytes_)
                  : fill_values(w.cache.type, values_, values_bytes_);
    if (w.is_quantised()) {
        scales_bytes_ = size_t(quire_bytes_of(w.cache.scale_type, rows * w.scales_of(w.stored_dim())));
        scales_ = allocate_huge(scales_bytes_);
        fill_scales(w.cache, scales_, scales_bytes_);
    }
    page_table_.resize(size_t(w.batch * w.pages()));
    for (size_t i = 0; i < page_table_.size(); ++i) page_table_[i] = int64_t(i) * page_rows();
    std::shuffle(page_table_.begin(), page_table_.end(), std::mt19937(2));
}

// From the first row of a page to that of the next, and behind the last row of the last page.
int64_t PagedCache::page_rows() const {
    return w_.layout == kWholePages ? page_ * w_.kv_heads * w_.planes() : page_;
}
int64_t PagedCache::last_row() const { return slots_ / page_ * page_rows() - page_rows() + page_; }

ReadFrom PagedCache::plain_read(int64_t i) const {
    const size_t layer = values_bytes_ / size_t(layers_), farthest = size_t((i + layers_ / 2) % layers_);
    return {static_cast<const char*>(values_), values_bytes_, farthest * layer + layer / 4};
}

PagedCache::~PagedCache() {
    free_huge(values_, values_bytes_);
    free_huge(scales_, scales_bytes_);
}

// [MaxT, Hk, width] of one layer's keys or values, of rows that are `stored` wide.
quire_tensor PagedCache::rows(void* memory, quire_type type, int64_t stored, int64_t width, int64_t layer,
                              int64_t which) const {
    const int64_t unit = w_.in_blocks() ? kBlockTokens : 1;
    const Strides strides = strides_of(w_, slots_ / unit, page_ / unit, layers_, stored);
    const int64_t first = layer * strides.layer + (w_.value_view ? 0 : which * strides.which);
    quire_tensor view{};
    view.data = static_cast<char*>(memory) + quire_bytes_of(type, first);
    view.type = type;
    view.rank = 3;
    view.shape[0] = last_row() / unit, view.shape[1] = w_.kv_heads, view.shape[2] = width;
    view.strides[0] = strides.slot, view.strides[1] = strides.head, view.strides[2] = 1;
    return view;
}

int64_t PagedCache::dim_of(int64_t which) const { return which == 0 ? w_.head_dim : w_.dim_of_values(); }

quire_tensor PagedCache::values(int64_t layer, int64_t which) const {
    const auto width = [&](int64_t dim) { return w_.in_blocks() ? w_.row_bytes(dim) * kBlockTokens : dim; };
    return rows(values_, w_.cache.type, width(w_.stored_dim()), width(dim_of(which)), layer, which);
}

quire_tensor PagedCache::scales(int64_t layer, int64_t which) const {
    if (!w_.is_quantised()) return {};
    return rows(scales_, w_.cache.scale_type, w_.scales_of(w_.stored_dim()), w_.scales_of(dim_of(which)),
                layer, which);
}

quire_tensor PagedCache::page_table() const {
    const int64_t shape[] = {w_.batch, int64_t(page_table_.size()) / w_.batch};
    return quire_tensor_of(const_cast<int64_t*>(page_table_.data()), QUIRE_INT64, w_.page_size ? 2 : 1,
                           shape);
}

namespace {

using Caches = std::map<std::string, std::unique_ptr<PagedCache>>;
Caches& caches() {
    static Caches all;
    return all;
}

}  // namespace

// The name of a workload that differs only in what the cache does not depend on.
std::string cache_key(const Workload& w) {
    Workload same = w;
    same.is_append = same.ragged = false;
    same.heads = same.kv_heads, same.query_len = 1, same.threads = 1, same.window = 0;
    same.mask = Mask::none, same.type = QUIRE_F32, same.precision = QUIRE_PRECISION_HIGHEST;
    same.target.clear();
    same.warm = !w.is_cold();
    return same.name();
}

const PagedCache& cache_of(const Workload& w) {
    std::unique_ptr<PagedCache>& cache = caches()[cache_key(w)];
    if (!cache) cache = std::make_unique<PagedCache>(w);
    return *cache;
}

void keep_caches_of(const std::vector<Workload>& workloads) {
    std::set<std::string> wanted;
    for (const Workload& w : workloads) wanted.insert(cache_key(w));
    for (auto at = caches().begin(); at != caches().end();)
        at = wanted.count(at->first) ? std::next(at) : caches().erase(at);
}

}  // namespace bench
