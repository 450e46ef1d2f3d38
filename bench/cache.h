// A cache of random keys and values, as a server that has run for a while holds it: with shuffled pages.
#pragma once
#include <vector>

#include "bench/limits.h"
#include "bench/workload.h"

namespace bench {

// All layers have the same page table. Blocks of tokens lie as rows do.
class PagedCache {
public:
    explicit PagedCache(const Workload& workload);
    PagedCache(const PagedCache&) = delete;
    ~PagedCache();

    int64_t layers() const { return layers_; }
    quire_tensor key(int64_t layer) const { return values(layer, 0); }
    quire_tensor value(int64_t layer) const { return values(layer, 1); }
    quire_tensor key_scale(int64_t layer) const { return scales(layer, 0); }
    quire_tensor value_scale(int64_t layer) const { return scales(layer, 1); }
    // For plain reads, so that they find the memory as fast as a run does (a virtual machine's need not be
    // the same everywhere): rows of the layer that is farthest from that of run i.
    ReadFrom plain_read(int64_t i) const;
    bool is_quantised() const { return w_.is_quantised(); }  // with tensors of scales
    quire_tensor page_table() const;                         // [B, MaxP], or [B] where there are no pages

private:
    quire_tensor values(int64_t layer, int64_t which) const;
    quire_tensor scales(int64_t layer, int64_t which) const;
    quire_tensor rows(void* memory, quire_type type, int64_t stored, int64_t width, int64_t layer,
                      int64_t which) const;
    int64_t dim_of(int64_t which) const;
    int64_t page_rows() const;
    int64_t last_row() const;

    const Workload w_;
    int64_t slots_ = 0, page_ = 0, layers_;
    size_t values_bytes_ = 0, scales_bytes_ = 0;
    void *values_ = nullptr, *scales_ = nullptr;
    std::vector<int64_t> page_table_;
};

// The same for workloads that have the same cache.
std::string cache_key(const Workload& workload);
// The cache of a workload, made when it is first asked for.
const PagedCache& cache_of(const Workload& workload);
// Gives back all others: before more are made, because there may not be memory for all.
void keep_caches_of(const std::vector<Workload>& workloads);

}  // namespace bench
