// A paged cache of random keys and values, as a server that has run for a while holds it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "quire/quire.h"

namespace bench {

// The model of all workloads, in the letters of quire.h.
constexpr int64_t H = 32, Hk = 8, D = 128, P = 128;

struct CacheFormat {
    std::string name;  // "int8_g8"
    quire_format format;
    double bytes_per_value;  // scales included
    bool is_blocks() const { return format.type >= QUIRE_Q8_0; }
};

const std::vector<CacheFormat>& cache_formats();

// PMX layout 3, (L, 2, Hk, MaxT, D), with shuffled pages of P tokens. All layers have the same page table.
class PagedCache {
public:
    // kv_len tokens for each of `batch` sequences; so many layers that all of them exceed `min_bytes`.
    PagedCache(const CacheFormat& format, int64_t batch, int64_t kv_len, size_t min_bytes);
    PagedCache(const PagedCache&) = delete;
    ~PagedCache();

    int64_t layers() const { return layers_; }
    quire_tensor key(int64_t layer) const { return values(layer, 0); }
    quire_tensor value(int64_t layer) const { return values(layer, 1); }
    quire_tensor key_scale(int64_t layer) const { return scales(layer, 0); }
    quire_tensor value_scale(int64_t layer) const { return scales(layer, 1); }
    bool is_quantised() const { return format_.format.quant_group != 0; }  // with tensors of scales
    quire_tensor page_table() const;                                       // [B, MaxP]

private:
    quire_tensor values(int64_t layer, int64_t which) const;
    quire_tensor scales(int64_t layer, int64_t which) const;

    CacheFormat format_;
    int64_t batch_, slots_, layers_;
    size_t values_bytes_, scales_bytes_;
    void *values_ = nullptr, *scales_ = nullptr;
    std::vector<int64_t> page_table_;
};

}  // namespace bench
