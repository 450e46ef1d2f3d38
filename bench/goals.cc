// The goals of issues 5 and 6 as a table: what is wanted, of which workload. bench/goal_rows.cc makes sense
// of it.
#include "bench/goals.h"

namespace bench {
namespace {

using namespace ratios;

#define ALL_PRECISIONS "precision=highest,high,medium "
#define S512 "query-len=512 kv-len=512 "
#define S512_ON_4096 "query-len=512 kv-len=4608 "
#define S2048 "query-len=2048 kv-len=2048 "
#define D128 "heads=32 kv-heads=8 head-dim=128 value-dim=0 value-view=0"

// clang-format off
const std::vector<Goal> kGoals = {
    // ---- issue 5, decode: 32768 keys, page 128, 2 threads
    {5, "f32, f16, bf16", &roofline, .80, 0, "cache=f32,f16,bf16 " ALL_PRECISIONS, nullptr},
    {5, "int8, group 32 to 128, PMX layout 3: highest", &roofline, .82, 0, "cache=int8 group=32,128", nullptr},
    {5, "int8, group 32 to 128, PMX layout 3: high", &roofline, .70, 0, "cache=int8 group=32,128 precision=high", nullptr},
    {5, "int8, group 32 to 128, PMX layout 3: medium", &roofline, .75, 0, "cache=int8 group=32,128 precision=medium", nullptr},
    {5, "int8, group 8, f16 scales: highest", &roofline, .65, 0, "cache=int8 group=8", nullptr},
    {5, "int8, group 8, f16 scales: high", &roofline, .65, 0, "cache=int8 group=8 precision=high", nullptr},
    {5, "int8, group 8, f16 scales: medium", &roofline, .72, 0, "cache=int8 group=8 precision=medium", nullptr},
    {5, "int4, group 32 to 128: highest", &roofline, .88, 0, "cache=int4 group=32,128", nullptr},
    {5, "int4, group 32 to 128: high", &roofline, .70, 0, "cache=int4 group=32,128 precision=high", nullptr},
    {5, "int4, group 32 to 128: medium", &roofline, .65, 0, "cache=int4 group=32,128 precision=medium", nullptr},
    {5, "int4, group 8: highest", &roofline, .65, 0, "cache=int4 group=8", nullptr},
    {5, "int4, group 8: high", &roofline, .50, 0, "cache=int4 group=8 precision=high", nullptr},
    {5, "int4, group 8: medium", &roofline, .55, 0, "cache=int4 group=8 precision=medium", nullptr},
    {5, "int8, group 32 to 128, own format: highest", &roofline, .92, 0, "cache=int8_b16 layout=4 group=32,128", nullptr},
    {5, "int8, group 32 to 128, own format: high", &roofline, .80, 0, "cache=int8_b16 layout=4 group=32,128 precision=high", nullptr},
    {5, "int8, group 32 to 128, own format: medium", &roofline, .83, 0, "cache=int8_b16 layout=4 group=32,128 precision=medium", nullptr},
    {5, "int8, group 8, own format: highest", &roofline, .75, 0, "cache=int8_b16 layout=4 group=8", nullptr},
    {5, "int8, group 8, own format: high", &roofline, .78, 0, "cache=int8_b16 layout=4 group=8 precision=high", nullptr},
    {5, "int8, group 8, own format: medium", &roofline, .82, 0, "cache=int8_b16 layout=4 group=8 precision=medium", nullptr},
    {5, "int4, group 32 to 128, own format: highest", &roofline, .98, 0, "cache=int4_b16 layout=4 group=32,128", nullptr},
    {5, "int4, group 32 to 128, own format: high", &roofline, .75, 0, "cache=int4_b16 layout=4 group=32,128 precision=high", nullptr},
    {5, "int4, group 32 to 128, own format: medium", &roofline, .70, 0, "cache=int4_b16 layout=4 group=32,128 precision=medium", nullptr},
    {5, "int4, group 8, own format: highest", &roofline, .78, 0, "cache=int4_b16 layout=4 group=8", nullptr},
    {5, "int4, group 8, own format: high", &roofline, .60, 0, "cache=int4_b16 layout=4 group=8 precision=high", nullptr},
    {5, "int4, group 8, own format: medium", &roofline, .65, 0, "cache=int4_b16 layout=4 group=8 precision=medium", nullptr},
    {5, "no sharing (H 8 / Hk 8), int8: of the plain read", &dram, .88, 0, "heads=8 kv-heads=8 " ALL_PRECISIONS, nullptr},
    {5, "H 9 / Hk 3, D 64: within 15 % of D 128", &roofline_to, .85, 0, "heads=9 kv-heads=3 head-dim=64 " ALL_PRECISIONS, D128},
    {5, "D 80: within 15 % of D 128", &roofline_to, .85, 0, "head-dim=80 group=16 " ALL_PRECISIONS, D128},
    {5, "D 96, 256: within 15 % of D 128", &roofline_to, .85, 0, "head-dim=96,256 " ALL_PRECISIONS, D128},
    {5, "D 576/512 (MLA, H 16 / Hk 1): within 15 % of D 128", &roofline_to, .85, 0,
        "heads=16 kv-heads=1 head-dim=576 value-dim=512 value-view=1 " ALL_PRECISIONS, D128},
    {5, "16 sequences x 2048 keys, a byte as fast as one", &bytes_to, 1, 0, "cache=int8,int4 batch=16 kv-len=2048 " ALL_PRECISIONS,
        "batch=1 kv-len=32768"},
    {5, "2, 4, 8 query tokens: of their own roofline", &roofline, .65, 0, "query-len=2,4,8 " ALL_PRECISIONS, nullptr},
    {5, "4 query tokens cost at most twice one", &time_to, 2, 0, "cache=int8,int4 query-len=4 precision=medium", "query-len=1"},
    {5, "AVX2 target: half of AVX-512's speed (55 % the aim)", &speed_to, .50, 0, "cache=int8,int4 target=avx2 " ALL_PRECISIONS, "target="},
    {5, "AVX-VNNI, where it is there: no slower than AVX2", &speed_to, 1, 0,
        "cache=int8,int4 kv-len=4096 warm=1 target=avx2_vnni " ALL_PRECISIONS, "target=avx2"},
    {5, "layouts 0 to 3 within 15 % of each other", &time_range, 1.15, 0, "layout=0 " ALL_PRECISIONS, "layout=1,2,3"},
    {5, "2 threads 1.9 times 1 thread (keys in L3)", &speed_to, 1.9, 0, "cache=int8,int4 kv-len=4096 warm=1 " ALL_PRECISIONS,
        "threads=1"},

    // ---- issue 5, append
    {5, "512 tokens: 70 % of the speed of memcpy", &memcpy_speed, .70, 0, "op=append query-len=512 cache=int8,int4 threads=1,2",
        nullptr},
    {5, "one token: under 2 microseconds", &token_time, 2, 0, "op=append query-len=1 cache=int8,int4 threads=1", nullptr},

    // ---- issue 6, prefill: page 64 or 128, 2 threads
    {6, "highest, 512 x 512", &fma, .83, .80, "cache=int8,int4,f32,f16,bf16 " S512, nullptr},
    {6, "highest, 512 on 4096", &fma, .92, .89, "cache=int8,int4,f32,f16,bf16 " S512_ON_4096, nullptr},
    {6, "highest, 2048 x 2048", &fma, .90, .88, "cache=int8,int4,f32,f16,bf16 " S2048, nullptr},
    {6, "highest, page 64, 512 x 512", &fma, .83, .80, "page-size=64 " S512, nullptr},
    {6, "highest, page 64, 512 on 4096", &fma, .92, .89, "page-size=64 " S512_ON_4096, nullptr},
    {6, "highest, page 64, 2048 x 2048", &fma, .90, .88, "page-size=64 " S2048, nullptr},
    {6, "high, 512 x 512: to the f32 FMA peak", &fma, 1.03, 0, "cache=int8,int4 precision=high " S512, nullptr},
    {6, "high, 512 on 4096: to the f32 FMA peak", &fma, 1.17, 0, "cache=int8,int4 precision=high " S512_ON_4096, nullptr},
    {6, "high, 2048 x 2048: to the f32 FMA peak", &fma, 1.14, 0, "cache=int8,int4 precision=high " S2048, nullptr},
    {6, "medium, f16 and bf16, 512 x 512", &bf16, .79, 0, "cache=f16,bf16 precision=medium " S512, nullptr},
    {6, "medium, f16 and bf16, 512 on 4096", &bf16, .89, 0, "cache=f16,bf16 precision=medium " S512_ON_4096, nullptr},
    {6, "medium, f16 and bf16, 2048 x 2048", &bf16, .87, 0, "cache=f16,bf16 precision=medium " S2048, nullptr},
    {6, "medium, int8 and int4, 512 x 512", &bf16, .96, 0, "cache=int8,int4 precision=medium " S512, nullptr},
    {6, "medium, int8 and int4, 512 on 4096", &bf16, 1.09, 0, "cache=int8,int4 precision=medium " S512_ON_4096, nullptr},
    {6, "medium, int8 and int4, 2048 x 2048", &bf16, 1.06, 0, "cache=int8,int4 precision=medium " S2048, nullptr},
    {6, "D 64, 96, 256: 85 % of the D 128 figure", &flops_to, .85, 0, "head-dim=64,96,256 " S512, "head-dim=128"},
    {6, "D 64, 96, 256: 85 % of the D 128 figure", &flops_to, .85, 0, "head-dim=64,96,256 " S2048, "head-dim=128"},
    {6, "D 80: 85 % of the D 128 figure", &flops_to, .85, 0, "head-dim=80 group=16 " S512, "head-dim=128"},
    {6, "D 80: 85 % of the D 128 figure", &flops_to, .85, 0, "head-dim=80 group=16 " S2048, "head-dim=128"},
    {6, "sliding window: 80 % of dense a pair", &flops_to, .80, 0, "window=512 " S2048, "window=0"},
    {6, "sliding window: 80 % of dense a pair", &flops_to, .80, 0, "window=1024 " S512_ON_4096, "window=0"},
    {6, "ragged, 64 sequences of 1 to 700: 80 % of dense a pair", &flops_to, .80, 0,
        "cache=int8,f32 ragged=1 batch=64 query-len=700 kv-len=700", "ragged=0 batch=1 " S512},
    {6, "17 tokens take no longer than 20, within 10 %", &time_to, 1.1, 0, "query-len=17 kv-len=4113", "query-len=20 kv-len=4116"},
    {6, "20 tokens no longer than 24", &time_to, 1.1, 0, "query-len=20 kv-len=4116", "query-len=24 kv-len=4120"},
    {6, "24 tokens no longer than 25", &time_to, 1.1, 0, "query-len=24 kv-len=4120", "query-len=25 kv-len=4121"},
    {6, "25 tokens no longer than 32", &time_to, 1.1, 0, "query-len=25 kv-len=4121", "query-len=32 kv-len=4128"},
    {6, "32 tokens no longer than 33", &time_to, 1.1, 0, "query-len=32 kv-len=4128", "query-len=33 kv-len=4129"},
    {6, "33 tokens no longer than 40", &time_to, 1.1, 0, "query-len=33 kv-len=4129", "query-len=40 kv-len=4136"},
    {6, "40 tokens no longer than 48", &time_to, 1.1, 0, "query-len=40 kv-len=4136", "query-len=48 kv-len=4144"},
    {6, "48 tokens no longer than 49", &time_to, 1.1, 0, "query-len=48 kv-len=4144", "query-len=49 kv-len=4145"},
    {6, "49 tokens no longer than 56", &time_to, 1.1, 0, "query-len=49 kv-len=4145", "query-len=56 kv-len=4152"},
    {6, "56 tokens no longer than 64", &time_to, 1.1, 0, "query-len=56 kv-len=4152", "query-len=64 kv-len=4160"},
    {6, "ALiBi costs under 10 %", &time_to, 1.1, 0, "mask=alibi " S512, "mask=none"},
    {6, "ALiBi costs under 10 %", &time_to, 1.1, 0, "mask=alibi " S512_ON_4096, "mask=none"},
    {6, "additive masks cost under 10 %", &time_to, 1.1, 0, "mask=all,head mask-type=f32,f16 " S512, "mask=none"},
    {6, "additive masks cost under 10 %", &time_to, 1.1, 0, "mask=all " S512_ON_4096, "mask=none"},
    {6, "int4 within 10 % of f32", &time_to, 1.1, 0, "cache=int4 " S512, "cache=f32"},
    {6, "int4 within 10 % of f32", &time_to, 1.1, 0, "cache=int4 " S512_ON_4096, "cache=f32"},
    {6, "int4 within 10 % of f32", &time_to, 1.1, 0, "cache=int4 " S2048, "cache=f32"},
};
// clang-format on

}  // namespace

const std::vector<Goal>& goals() { return kGoals; }

}  // namespace bench
