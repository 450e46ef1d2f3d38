// quire_append: query_len new tokens of each sequence are quantised and stored in its pages.
#include <algorithm>

#include "bench/call.h"

namespace bench {
namespace {

class AppendCall : public Call {
public:
    AppendCall(const Workload& w, quire_plan* plan)
        : Call(plan),
          w_(w),
          cache_(cache_of(w)),
          key_data_(random_numbers(w.type, w.batch * w.query_len * w.kv_heads * w.head_dim, 4)),
          value_data_(random_numbers(w.type, w.batch * w.query_len * w.kv_heads * w.dim_of_values(), 4)),
          start_(size_t(w.batch)) {
        for (int64_t b = 0; b <= w.batch; ++b) seqstarts_.push_back(b * w.query_len);
    }

private:
    quire_status call(int64_t i) override { return quire_append(plan(), arguments(i)); }
    quire_status prepare(int64_t i, quire_run** run) override {
        return quire_prepare_append(plan(), arguments(i), run);
    }

    // Run i takes the next query_len positions, from the beginning again after the last.
    const quire_append_args* arguments(int64_t i) {
        std::fill(start_.begin(), start_.end(), i % (w_.kv_len / w_.query_len) * w_.query_len);
        const int64_t shape[] = {seqstarts_.back(), w_.kv_heads, w_.head_dim},
                      value_shape[] = {seqstarts_.back(), w_.kv_heads, w_.dim_of_values()},
                      batch[] = {w_.batch}, starts_shape[] = {w_.batch + 1};
        new_key_ = quire_tensor_of(key_data_.data(), w_.type, 3, shape);
        new_value_ = quire_tensor_of(value_data_.data(), w_.type, 3, value_shape);
        key_ = cache_.key(0), key_scale_ = cache_.key_scale(0);
        value_ = cache_.value(0), value_scale_ = cache_.value_scale(0);
        start_view_ = quire_tensor_of(start_.data(), QUIRE_INT64, 1, batch);
        seqstarts_view_ = quire_tensor_of(seqstarts_.data(), QUIRE_INT64, 1, starts_shape);
        pages_ = cache_.page_table();
        args_ = {};
        args_.struct_size = sizeof args_;
        args_.new_key = &new_key_, args_.new_value = &new_value_;
        args_.key = &key_, args_.value = &value_;
        args_.key_scale = cache_.is_quantised() ? &key_scale_ : nullptr;
        args_.value_scale = cache_.is_quantised() ? &value_scale_ : nullptr;
        args_.seqstarts = &seqstarts_view_;
        args_.start_pos = &start_view_;
        args_.cachestarts = &pages_;
        return &args_;
    }

    const Workload w_;
    const PagedCache& cache_;
    std::vector<uint32_t> key_data_, value_data_;
    std::vector<int64_t> start_, seqstarts_;
    quire_tensor new_key_, new_value_, key_, value_, key_scale_, value_scale_, start_view_, seqstarts_view_,
        pages_;
    quire_append_args args_;
};

}  // namespace

quire_status plan_append(const Workload& w, quire_plan** plan) {
    quire_append_desc desc;
    quire_append_desc_init(&desc);
    desc.num_kv_heads = int32_t(w.kv_heads);
    desc.head_dim = int32_t(w.head_dim);
    desc.value_head_dim = int32_t(w.value_dim);
    desc.type = w.type;
    desc.key_format = desc.value_format = w.cache;
    desc.page_size = int32_t(w.page_size);
    return quire_append_plan(context_of(w.threads, w.target), &desc, plan);
}

std::unique_ptr<Call> make_append_call(const Workload& workload) {
    quire_plan* plan = nullptr;
    check(plan_append(workload, &plan));
    return std::make_unique<AppendCall>(workload, plan);
}

}  // namespace bench
