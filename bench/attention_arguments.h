// What quire_attention is given for a workload: random queries, the layers of a cache, causal, with a window
// or a mask where one is wanted.
#pragma once
#include <algorithm>
#include <vector>

#include "bench/cache.h"

namespace bench {

quire_attention_desc attention_desc(const Workload& workload);

class AttentionArguments {
public:
    explicit AttentionArguments(const Workload& workload);
    // Of run i, which takes layer i; until the next call.
    const quire_attention_args* of(int64_t i);
    const std::vector<uint32_t>& output() const { return output_data_; }
    void clear_output() { std::fill(output_data_.begin(), output_data_.end(), ~0u); }  // NaN

private:
    int64_t mask_heads() const { return w_.mask == Mask::head ? w_.heads : 1; }
    int64_t mask_rows() const { return mask_heads() * seqstarts_.back(); }

    const Workload w_;
    const PagedCache& cache_;
    std::vector<uint32_t> query_data_, output_data_, mask_data_;
    std::vector<int64_t> seqstarts_ = {0}, kvstarts_ = {0};
    quire_tensor query_, output_, key_, value_, key_scale_, value_scale_, seqstarts_view_, kvstarts_view_,
        pages_, mask_;
    quire_attention_args args_;
};

}  // namespace bench
