// The kinds of ratio that results are judged by.
#pragma once
#include <vector>

#include "bench/measure.h"

namespace bench {

enum class Unit { share, times, microseconds };

// How a result is judged; `beside` are results of other workloads, measured in turns with it.
struct Ratio {
    const char* words;
    Unit unit;
    bool at_most;  // else at least
    double (*of)(const Result& result, const std::vector<Result>& beside);
    const Ratio* otherwise;  // shown, and not judged, where the target has no such peak and `of` gives 0
};

namespace ratios {
// Of a result alone.
extern const Ratio roofline, dram, fma, bf16, memcpy_speed, token_time;
// To the one beside it.
extern const Ratio roofline_to, flops_to, bytes_to, time_to, speed_to;
// Of it and all beside it.
extern const Ratio time_range;
}  // namespace ratios

}  // namespace bench
