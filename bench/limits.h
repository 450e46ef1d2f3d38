// What the machine can do: DRAM read speed and float32 FMA peak. Measured in the same process as the
// benchmarks and alternated with their runs, because both drift on a shared machine.
#pragma once
#include <cstddef>
#include <vector>

namespace bench {

struct Limits {
    double read_bytes_per_s = 0;  // plain read of memory that no cache holds
    double fma_flops_per_s = 0;   // 0 where the machine has no FMA
};

// One measurement with that many threads; takes a few milliseconds.
Limits sample_limits(int threads);

// Many of them, all with the same number of threads.
class LimitSamples {
public:
    void add(const Limits& sample);
    Limits median() const;
    Limits last() const { return {read_.back(), fma_.back()}; }
    bool empty() const { return read_.empty(); }

private:
    std::vector<double> read_, fma_;
};

// Memory in huge pages where the system gives them.
void* allocate_huge(size_t bytes);
void free_huge(void* memory, size_t bytes);

// Larger than what any cache of this machine holds.
size_t beyond_caches();

double median_of(std::vector<double> values);

}  // namespace bench
