#include "bench/ratios.h"

#include <algorithm>

namespace bench {
namespace {

double over(double a, double b) { return b > 0 ? a / b : 0; }

using Results = std::vector<Result>;

// Of a workload alone.
double roofline_of(const Result& r, const Results&) { return r.roofline_share; }
double dram_of(const Result& r, const Results&) { return r.dram_share; }
double fma_of(const Result& r, const Results&) { return over(r.gflop_per_s * 1e9, r.limits.fma_flops_per_s); }
double bf16_of(const Result& r, const Results&) {
    return over(r.gflop_per_s * 1e9, r.limits.bf16_flops_per_s);
}
double memcpy_of(const Result& r, const Results&) { return r.memcpy_share; }
double us_of(const Result& r, const Results&) { return r.time_ms * 1e3 / double(r.workload.new_tokens()); }

// To another one.
double roofline_to_of(const Result& r, const Results& beside) {
    return over(r.roofline_share, beside[0].roofline_share);
}
double flops_to_of(const Result& r, const Results& beside) {
    return over(r.gflop_per_s, beside[0].gflop_per_s);
}
double bytes_to_of(const Result& r, const Results& beside) {
    return over(r.cache_gb_per_s, beside[0].cache_gb_per_s);
}
double time_to_of(const Result& r, const Results& beside) { return over(r.time_ms, beside[0].time_ms); }
double speed_to_of(const Result& r, const Results& beside) { return over(beside[0].time_ms, r.time_ms); }

// Of several.
double time_range_of(const Result& r, const Results& beside) {
    double least = r.time_ms, most = r.time_ms;
    for (const Result& other : beside) {
        least = std::min(least, other.time_ms);
        most = std::max(most, other.time_ms);
    }
    return over(most, least);
}

}  // namespace

namespace ratios {

// words, unit, at most, of, otherwise
const Ratio roofline = {"of the roofline", Unit::share, false, roofline_of, nullptr};
const Ratio dram = {"of a plain DRAM read", Unit::share, false, dram_of, nullptr};
const Ratio fma = {"of the float32 FMA peak", Unit::share, false, fma_of, nullptr};
const Ratio bf16 = {"of the bf16 dot peak", Unit::share, false, bf16_of, &fma};
const Ratio memcpy_speed = {"of the speed of memcpy", Unit::share, false, memcpy_of, nullptr};
const Ratio token_time = {"a token", Unit::microseconds, true, us_of, nullptr};
const Ratio roofline_to = {"roofline share, to the other's", Unit::share, false, roofline_to_of, nullptr};
const Ratio flops_to = {"speed a pair seen, to the other's", Unit::share, false, flops_to_of, nullptr};
const Ratio bytes_to = {"speed a byte, to the other's", Unit::share, false, bytes_to_of, nullptr};
const Ratio time_to = {"time, to the other's", Unit::times, true, time_to_of, nullptr};
const Ratio speed_to = {"speed, to the other's", Unit::times, false, speed_to_of, nullptr};
const Ratio time_range = {"longest time, to the shortest", Unit::times, true, time_range_of, nullptr};

}  // namespace ratios
}  // namespace bench
