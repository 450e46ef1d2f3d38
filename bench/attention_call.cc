#include "bench/attention_call.h"

#include <random>

namespace bench {

AttentionCall::AttentionCall(const Workload& workload, const PagedCache& cache) : cache_(cache) {
    const int64_t n = workload.batch * workload.query_len;
    query_.resize(size_t(n * H * D));
    output_.resize(query_.size());
    std::minstd_rand random(3);
    std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
    for (float& x : query_) x = uniform(random);
    for (int64_t b = 0; b <= workload.batch; ++b) {
        seqstarts_.push_back(b * workload.query_len);
        kvstarts_.push_back(b * workload.kv_len);
    }

    quire_attention_desc desc;
    quire_attention_desc_init(&desc);
    desc.num_heads = H;
    desc.num_kv_heads = Hk;
    desc.head_dim = D;
    desc.type = QUIRE_F32;
    desc.key_format = desc.value_format = workload.cache->format;
    desc.is_causal = 1;
    desc.page_size = P;
    check(quire_attention_plan(context_of(workload.threads), &desc, &plan_));
}

void AttentionCall::run(int64_t i) {
    const int64_t layer = i % cache_.layers();
    const int64_t shape[] = {seqstarts_.back(), H, D}, starts_shape[] = {int64_t(seqstarts_.size())};
    const quire_tensor query = quire_tensor_of(query_.data(), QUIRE_F32, 3, shape);
    const quire_tensor output = quire_tensor_of(output_.data(), QUIRE_F32, 3, shape);
    const quire_tensor seqstarts = quire_tensor_of(seqstarts_.data(), QUIRE_INT64, 1, starts_shape);
    const quire_tensor kvstarts = quire_tensor_of(kvstarts_.data(), QUIRE_INT64, 1, starts_shape);
    const quire_tensor key = cache_.key(layer), key_scale = cache_.key_scale(layer);
    const quire_tensor value = cache_.value(layer), value_scale = cache_.value_scale(layer);
    const quire_tensor pages = cache_.page_table();

    quire_attention_args args{};
    args.struct_size = sizeof args;
    args.query = &query;
    args.key = &key;
    args.value = &value;
    args.key_scale = cache_.is_quantised() ? &key_scale : nullptr;
    args.value_scale = cache_.is_quantised() ? &value_scale : nullptr;
    args.seqstarts = &seqstarts;
    args.kvstarts = &kvstarts;
    args.cachestarts = &pages;
    args.output = &output;
    check(quire_attention(plan_, &args));
}

void register_attention(const Workload& workload, size_t min_cache_bytes) {
    auto benchmark = [workload, min_cache_bytes](benchmark::State& state) {
        AttentionCall call(workload, cache_of(workload, min_cache_bytes));
        measure(state, workload, workload.cache_bytes(), workload.flops(), [&](int64_t i) { call.run(i); });
    };
    benchmark::RegisterBenchmark(workload.name.c_str(), benchmark)->Unit(benchmark::kMillisecond);
}

}  // namespace bench
