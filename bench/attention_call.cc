// quire_attention over the layers of a cache: random queries, a causal mask.
#include "bench/call.h"

namespace bench {
namespace {

class AttentionCall : public Call {
public:
    AttentionCall(const Workload& w, quire_plan* plan)
        : Call(plan),
          w_(w),
          cache_(cache_of(w)),
          query_data_(random_numbers(w.type, w.batch * w.query_len * w.heads * w.head_dim, 3)),
          output_data_(query_data_.size()) {
        for (int64_t b = 0; b <= w.batch; ++b) {
            seqstarts_.push_back(b * w.query_len);
            kvstarts_.push_back(b * w.kv_len);
        }
    }

private:
    quire_status call(int64_t i) override { return quire_attention(plan(), arguments(i)); }
    quire_status prepare(int64_t i, quire_run** run) override {
        return quire_prepare_attention(plan(), arguments(i), run);
    }

    const quire_attention_args* arguments(int64_t i) {
        const int64_t layer = i % cache_.layers();
        const int64_t shape[] = {seqstarts_.back(), w_.heads, w_.head_dim},
                      starts_shape[] = {int64_t(seqstarts_.size())};
        query_ = quire_tensor_of(query_data_.data(), w_.type, 3, shape);
        output_ = quire_tensor_of(output_data_.data(), w_.type, 3, shape);
        seqstarts_view_ = quire_tensor_of(seqstarts_.data(), QUIRE_INT64, 1, starts_shape);
        kvstarts_view_ = quire_tensor_of(kvstarts_.data(), QUIRE_INT64, 1, starts_shape);
        key_ = cache_.key(layer), key_scale_ = cache_.key_scale(layer);
        value_ = cache_.value(layer), value_scale_ = cache_.value_scale(layer);
        pages_ = cache_.page_table();
        args_ = {};
        args_.struct_size = sizeof args_;
        args_.query = &query_, args_.output = &output_;
        args_.key = &key_, args_.value = &value_;
        args_.key_scale = cache_.is_quantised() ? &key_scale_ : nullptr;
        args_.value_scale = cache_.is_quantised() ? &value_scale_ : nullptr;
        args_.seqstarts = &seqstarts_view_, args_.kvstarts = &kvstarts_view_;
        args_.cachestarts = &pages_;
        return &args_;
    }

    const Workload w_;
    const PagedCache& cache_;
    std::vector<uint32_t> query_data_, output_data_;
    std::vector<int64_t> seqstarts_, kvstarts_;
    quire_tensor query_, output_, key_, value_, key_scale_, value_scale_, seqstarts_view_, kvstarts_view_,
        pages_;
    quire_attention_args args_;
};

}  // namespace

quire_status plan_attention(const Workload& w, quire_plan** plan) {
    quire_attention_desc desc;
    quire_attention_desc_init(&desc);
    desc.num_heads = int32_t(w.heads);
    desc.num_kv_heads = int32_t(w.kv_heads);
    desc.head_dim = int32_t(w.head_dim);
    desc.type = w.type;
    desc.key_format = desc.value_format = w.cache;
    desc.is_causal = 1;
    desc.page_size = int32_t(w.page_size);
    desc.precision = w.precision;
    return quire_attention_plan(context_of(w.threads), &desc, plan);
}

std::unique_ptr<Call> make_attention_call(const Workload& workload) {
    quire_plan* plan = nullptr;
    check(plan_attention(workload, &plan));
    return std::make_unique<AttentionCall>(workload, plan);
}

}  // namespace bench
