// Decode: one new token of each sequence attends to its cache. Every byte of the cache is read once a run,
// from DRAM: successive runs take successive layers, which together exceed every cache of the machine.
#include "bench/attention_call.h"

namespace bench {

void register_decode() {
    struct Shape {
        const char* name;
        int64_t batch, kv_len;
    };
    for (const CacheFormat& cache : cache_formats()) {
        for (const Shape& shape :
             {Shape{"kv32768", 1, 32768}, {"kv4096", 1, 4096}, {"16xkv2048", 16, 2048}}) {
            for (int threads : thread_counts()) {
                const std::string name =
                    "decode/" + cache.name + "/" + shape.name + "/t" + std::to_string(threads);
                register_attention({name, &cache, shape.batch, 1, shape.kv_len, threads}, beyond_caches());
            }
        }
    }
}

}  // namespace bench
