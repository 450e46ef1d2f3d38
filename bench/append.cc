// Append: 512 new tokens are quantised and stored in the pages of one sequence. cache_GB/s and dram_share
// count what is written.
#include <random>

#include "bench/measure.h"

namespace bench {
namespace {

constexpr int64_t kTokens = 512, kCacheTokens = 32768;

class AppendCall {
public:
    AppendCall(const Workload& workload, const PagedCache& cache) : cache_(cache) {
        new_key_.resize(size_t(kTokens * Hk * D));
        std::minstd_rand random(4);
        std::normal_distribution<float> normal;
        for (float& x : new_key_) x = normal(random);
        new_value_ = new_key_;

        quire_append_desc desc;
        quire_append_desc_init(&desc);
        desc.num_kv_heads = Hk;
        desc.head_dim = D;
        desc.type = QUIRE_F32;
        desc.key_format = desc.value_format = workload.cache->format;
        desc.page_size = P;
        check(quire_append_plan(context_of(workload.threads), &desc, &plan_));
    }
    AppendCall(const AppendCall&) = delete;
    ~AppendCall() { quire_plan_destroy(plan_); }

    // Run i takes the next 512 positions, from the beginning again after the last.
    void run(int64_t i) {
        int64_t start = i % (kCacheTokens / kTokens) * kTokens;
        const int64_t shape[] = {kTokens, Hk, D}, one[] = {1};
        const quire_tensor new_key = quire_tensor_of(new_key_.data(), QUIRE_F32, 3, shape);
        const quire_tensor new_value = quire_tensor_of(new_value_.data(), QUIRE_F32, 3, shape);
        const quire_tensor key = cache_.key(0), key_scale = cache_.key_scale(0);
        const quire_tensor value = cache_.value(0), value_scale = cache_.value_scale(0);
        const quire_tensor start_pos = quire_tensor_of(&start, QUIRE_INT64, 1, one);
        const quire_tensor pages = cache_.page_table();

        quire_append_args args{};
        args.struct_size = sizeof args;
        args.new_key = &new_key;
        args.new_value = &new_value;
        args.key = &key;
        args.value = &value;
        args.key_scale = cache_.is_quantised() ? &key_scale : nullptr;
        args.value_scale = cache_.is_quantised() ? &value_scale : nullptr;
        args.start_pos = &start_pos;
        args.cachestarts = &pages;
        check(quire_append(plan_, &args));
    }

private:
    const PagedCache& cache_;
    quire_plan* plan_ = nullptr;
    std::vector<float> new_key_, new_value_;
};

}  // namespace

void register_append() {
    for (const CacheFormat& cache : cache_formats()) {
        if (cache.is_blocks()) continue;  // quire_append refuses them
        for (int threads : thread_counts()) {
            const std::string name = "append/" + cache.name + "/512/t" + std::to_string(threads);
            const Workload workload{name, &cache, 1, kTokens, kCacheTokens, threads};
            const double written = workload.cache_bytes() * kTokens / kCacheTokens;
            auto benchmark = [workload, written](benchmark::State& state) {
                AppendCall call(workload, cache_of(workload, 0));
                measure(state, workload, written, 0, [&](int64_t i) { call.run(i); });
            };
            benchmark::RegisterBenchmark(name.c_str(), benchmark)->Unit(benchmark::kMillisecond);
        }
    }
}

}  // namespace bench
