// Deterministic random numbers, the same with every compiler and library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace quire::test {

// splitmix64.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    // Independent numbers for each (seed, a, b, ...).
    template <typename... Rest>
    Random(uint64_t seed, uint64_t a, Rest... rest)
        : Random(Random(seed ^ (a + 1) * 0xd6e8feb86659fd93).bits(), rest...) {}

    uint64_t bits() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    // 0 .. n - 1
    int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
    int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
    bool chance(double probability) { return uniform() < probability; }
    double uniform() { return double(bits() >> 11) * 0x1p-53; }
    // The sum of four uniform numbers, scaled: close to a standard normal, never above 3.5.
    float normal() {
        const uint64_t b = bits();
        const uint64_t sum = (b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48);
        return (float(sum) - 131070.f) * 2.643e-5f;
    }
    template <typename T>
    const T& pick(const std::vector<T>& from) {
        return from[size_t(below(int64_t(from.size())))];
    }
    template <typename T>
    void shuffle(std::vector<T>& list) {
        for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[size_t(below(int64_t(i)))]);
    }

private:
    uint64_t state_;
};

}  // namespace quire::test
