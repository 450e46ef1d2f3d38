// Dropout that needs no state: whether an element is dropped is a function of seed, step and its place alone,
// so that threads, splits and kernels change nothing.
#pragma once
#include <array>
#include <cstdint>

namespace quire {

using PhiloxBlock = std::array<uint32_t, 4>;

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC11).
inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint64_t key) {
    auto low = uint32_t(key), high = uint32_t(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t(0xD2511F53) * counter[0], b = uint64_t(0xCD9E8D57) * counter[2];
        counter = {uint32_t(b >> 32) ^ counter[1] ^ low, uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ high,
                   uint32_t(a)};
        low += 0x9E3779B9;
        high += 0xBB67AE85;
    }
    return counter;
}

// Element (plane, row, column) is word column % 4 of the block of counter (column / 4, row, plane, step) and
// key seed. It is dropped where the word is less than rate * 2^32, else multiplied by 1 / (1 - rate).
struct Dropout {
    float rate = 0;  // 0: nothing is dropped
    uint64_t seed = 0;
    uint32_t step = 0;

    explicit operator bool() const { return rate > 0; }
    float scale() const { return float(1 / (1 - double(rate))); }

    // x[j * stride] is column begin + j.
    void apply(uint32_t plane, uint32_t row, int64_t begin, int64_t count, float* x, int64_t stride) const {
        const double limit = double(rate) * 4294967296.0;
        const float kept = scale();
        for (int64_t j = 0; j < count;) {
            const int64_t column = begin + j;
            const PhiloxBlock block = philox4x32_10({uint32_t(column / 4), row, plane, step}, seed);
            for (auto word = size_t(column % 4); word < 4 && j < count; ++word, ++j)
                x[j * stride] *= double(block[word]) < limit ? 0.f : kept;
        }
    }
};

}  // namespace quire
