// What the machine can do, measured in the same process as the benchmarks and alternated with their runs,
// because it drifts on a shared machine.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "quire/quire.h"

namespace bench {

struct Limits {
    double read_bytes_per_s = 0;   // plain read of memory that no cache holds
    double pages_bytes_per_s = 0;  // loads alone of a workload's cache, in the order in which decode reads it
    double copy_bytes_per_s = 0;   // memcpy, bytes copied: from a cache to memory that no cache holds
    double fma_flops_per_s = 0;    // float32; 0 where the machine has no FMA
    // The same all through some 10 ms, as long as a workload runs, with whatever interrupts it: bursts, the
    // best of which is fma_flops_per_s, are out of reach for what takes longer.
    double fma_steady_flops_per_s = 0;
    double dot16_flops_per_s = 0;  // products of 16-bit integers added up: what two digits of 8 bits cost
    double dot8_flops_per_s = 0;   // products of 8-bit integers added up
    double bf16_flops_per_s = 0;   // products of bfloat16 added up in float32; 0 where the target has none
    double cycles_per_s = 0;       // of one thread
    // Of a workload that a cache holds: calls of one thread each, one on each of the workload's threads at
    // once, to the speed of one alone. What the memory that processors share, and other machines, leave of
    // their number.
    double apart = 0;

    // Of the arithmetic that a precision can be had with.
    double peak_of(quire_precision precision) const;
};

// Memory for plain reads, more than the machine's caches hold, and where the next one begins.
struct ReadFrom {
    const char* memory = nullptr;  // NULL: some that nothing else uses
    size_t bytes = 0, at = 0;
};

// One measurement with that many threads; takes a few milliseconds. What is not asked for is 0.
struct Wanted {
    bool copy = false, dots = false;
    std::string target;  // whose vectors and instructions the arithmetic has; empty: the machine's
    ReadFrom read;
};
Limits sample_limits(int threads, const Wanted& wanted);

// Runs work(index) on so many threads, each on a processor of its own; from the common start to the last end.
double seconds_together(int threads, const std::function<void(int)>& work);

// Many of them, all with the same number of threads.
class LimitSamples {
public:
    void add(const Limits& sample) { samples_.push_back(sample); }
    // DRAM as it was half of the time. Arithmetic as it was in the best tenth: at times two processors of a
    // virtual machine share one of the host, and half a peak makes a share of 177 %.
    Limits usual() const;
    bool empty() const { return samples_.empty(); }

private:
    std::vector<Limits> samples_;
};

// Memory in huge pages where the system gives them.
void* allocate_huge(size_t bytes);
void free_huge(void* memory, size_t bytes);

// Larger than what any cache of this machine holds.
size_t beyond_caches();

// The value that so great a share of `values` is below; 0 of none.
double quantile_of(std::vector<double> values, double share);
inline double median_of(const std::vector<double>& values) { return quantile_of(values, 0.5); }

}  // namespace bench
