// Decisions out of the fuzzer's bytes. When they run out, a generator seeded with all of them goes on, so
// that every input, however short, makes a whole call, and the same one each time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace quire::fuzz {

class Source {
public:
    Source(const uint8_t* data, size_t size) : data_(data), size_(size) {
        for (size_t i = 0; i < size; ++i) state_ = (state_ ^ data[i]) * 0x100000001b3;
    }

    uint64_t bits() {  // splitmix64, of no byte of the input
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t(bits()); }
    // low .. high, both included, at most 65536 values.
    int64_t between(int64_t low, int64_t high) {
        const int64_t count = high - low + 1;
        const int64_t drawn = count <= 256 ? byte() : byte() * 256 + byte();
        return low + drawn % count;
    }
    bool chance(int of_256) { return byte() < of_256; }
    template <typename T>
    T pick(std::initializer_list<T> from) {
        return from.begin()[between(0, int64_t(from.size()) - 1)];
    }

private:
    const uint8_t* data_;
    size_t size_, at_ = 0;
    uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace quire::fuzz
