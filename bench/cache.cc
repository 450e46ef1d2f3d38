#include "bench/cache.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "bench/limits.h"

namespace bench {
namespace {

int bits_of(quire_type type) {
    switch (type) {
        case QUIRE_F32: return 32;
        case QUIRE_F16:
        case QUIRE_BF16: return 16;
        case QUIRE_INT8: return 8;
        default: return 4;
    }
}

std::vector<CacheFormat> make_formats() {
    std::vector<CacheFormat> formats = {
        {"f32", {QUIRE_F32, 0, QUIRE_NONE}, 4},
        {"f16", {QUIRE_F16, 0, QUIRE_NONE}, 2},
        {"bf16", {QUIRE_BF16, 0, QUIRE_NONE}, 2},
    };
    for (quire_type type : {QUIRE_INT8, QUIRE_INT4}) {
        for (int group : {8, 32, 128}) {
            const std::string name = (type == QUIRE_INT8 ? "int8_g" : "int4_g") + std::to_string(group);
            formats.push_back({name, {type, group, QUIRE_F16}, bits_of(type) / 8.0 + 2.0 / group});
        }
    }
    const std::pair<const char*, quire_type> blocks[] = {{"q8_0", QUIRE_Q8_0}, {"q4_0", QUIRE_Q4_0},
                                                         {"q4_1", QUIRE_Q4_1}, {"q5_0", QUIRE_Q5_0},
                                                         {"q5_1", QUIRE_Q5_1}, {"iq4_nl", QUIRE_IQ4_NL}};
    for (const auto& [name, type] : blocks)
        formats.push_back({name, {type, 0, QUIRE_NONE}, double(quire_bytes_of(type, 32)) / 32});
    return formats;
}

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
    std::vector<T> block((1 << 20) - 3);
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
    std::vector<uint8_t> blocks(block_bytes * 32771);
    for (uint8_t& x : blocks) x = uint8_t(random());
    for (size_t at = 0; at < blocks.size(); at += block_bytes)
        for (size_t i = 0; i < 2; ++i) {
            const uint16_t scale = random_scale(type == QUIRE_Q8_0 ? QUIRE_INT8 : QUIRE_INT4, random());
            std::memcpy(&blocks[at + 2 * i], &scale, sizeof scale);
        }
    for (size_t at = 0; at < bytes; at += blocks.size())
        std::memcpy(static_cast<char*>(memory) + at, blocks.data(), std::min(blocks.size(), bytes - at));
}

// (Hk, MaxT, width) of one layer's keys or values, seen as [MaxT, Hk, width].
quire_tensor rows_view(char* data, quire_type type, int64_t slots, int64_t width) {
    quire_tensor view{};
    view.data = data;
    view.type = type;
    view.rank = 3;
    const int64_t shape[] = {slots, Hk, width}, strides[] = {width, slots * width, 1};
    std::copy(shape, shape + 3, view.shape);
    std::copy(strides, strides + 3, view.strides);
    return view;
}

}  // namespace

const std::vector<CacheFormat>& cache_formats() {
    static const std::vector<CacheFormat> formats = make_formats();
    return formats;
}

PagedCache::PagedCache(const CacheFormat& format, int64_t batch, int64_t kv_len, size_t min_bytes)
    : format_(format), batch_(batch) {
    const int64_t pages = (kv_len + P - 1) / P;
    slots_ = batch * pages * P;
    const quire_type type = format.format.type;
    values_bytes_ = size_t(quire_bytes_of(type, slots_ * Hk * D));
    scales_bytes_ = is_quantised() ? size_t(slots_) * Hk * (D / format.format.quant_group) * 2 : 0;
    layers_ = int64_t(min_bytes / (2 * (values_bytes_ + scales_bytes_))) + 1;

    values_ = allocate_huge(2 * values_bytes_ * layers_);
    if (format.is_blocks()) fill_blocks(type, values_, 2 * values_bytes_ * layers_);
    auto element = [type](uint32_t r) { return random_element(type, r); };
    if (bits_of(type) == 32) fill<uint32_t>(values_, 2 * values_bytes_ * layers_, element);
    if (bits_of(type) == 16) fill<uint16_t>(values_, 2 * values_bytes_ * layers_, element);
    if (bits_of(type) <= 8 && !format.is_blocks())
        fill<uint8_t>(values_, 2 * values_bytes_ * layers_, element);
    if (is_quantised()) {
        scales_ = allocate_huge(2 * scales_bytes_ * layers_);
        fill<uint16_t>(scales_, 2 * scales_bytes_ * layers_,
                       [type](uint32_t r) { return random_scale(type, r); });
    }

    page_table_.resize(size_t(batch * pages));
    for (size_t i = 0; i < page_table_.size(); ++i) page_table_[i] = int64_t(i) * P;
    std::shuffle(page_table_.begin(), page_table_.end(), std::mt19937(2));
}

PagedCache::~PagedCache() {
    free_huge(values_, 2 * values_bytes_ * layers_);
    free_huge(scales_, 2 * scales_bytes_ * layers_);
}

quire_tensor PagedCache::values(int64_t layer, int64_t which) const {
    char* data = static_cast<char*>(values_) + (2 * layer + which) * values_bytes_;
    return rows_view(data, format_.format.type, slots_, D);
}

quire_tensor PagedCache::scales(int64_t layer, int64_t which) const {
    if (!is_quantised()) return {};
    char* data = static_cast<char*>(scales_) + (2 * layer + which) * scales_bytes_;
    return rows_view(data, QUIRE_F16, slots_, D / format_.format.quant_group);
}

quire_tensor PagedCache::page_table() const {
    const int64_t shape[] = {batch_, int64_t(page_table_.size()) / batch_};
    return quire_tensor_of(const_cast<int64_t*>(page_table_.data()), QUIRE_INT64, 2, shape);
}

}  // namespace bench
