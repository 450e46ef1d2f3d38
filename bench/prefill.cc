// Prefill: many new tokens of one sequence attend to the cache, their own keys included, under a causal mask.
#include "bench/attention_call.h"

namespace bench {

void register_prefill() {
    struct Shape {
        const char* name;
        int64_t query_len, kv_len;
    };
    for (const CacheFormat& cache : cache_formats()) {
        for (const Shape& shape :
             {Shape{"512x512", 512, 512}, {"512on4096", 512, 4096 + 512}, {"2048x2048", 2048, 2048}}) {
            for (int threads : thread_counts()) {
                const std::string name =
                    "prefill/" + cache.name + "/" + shape.name + "/t" + std::to_string(threads);
                register_attention({name, &cache, 1, shape.query_len, shape.kv_len, threads}, 0);
            }
        }
    }
}

}  // namespace bench
