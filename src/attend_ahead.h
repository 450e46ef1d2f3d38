// Rows of memory that are to be in the caches later: asked for a few at a time, between other work, as a
// processor tracks only so many misses at once.
#pragma once
#include <cstdint>

namespace quire {

// The line at `at` is going to be written.
inline void prefetch_to_write(const void* at) {
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
}

class Ahead {
public:
    enum class Use { read, write };

    void clear() { count_ = 0; }
    bool empty() const { return count_ == 0; }
    // `bytes` from each of `count` addresses on.
    template <typename Char>
    void add(Char* const* rows, int64_t count, int64_t bytes, Use use) {
        for (int64_t i = 0; i < count && count_ < kMost; ++i)
            rows_[count_++] = {rows[i], int32_t(bytes), use};
    }
    // The rows of step `step` of `steps`.
    void fetch(int64_t step, int64_t steps) const {
        for (int64_t i = count_ * step / steps; i < count_ * (step + 1) / steps; ++i) fetch(rows_[i]);
    }

private:
    static constexpr int64_t kMost = 512, kLine = 64;
    struct Row {
        const char* at;
        int32_t bytes;
        Use use;
    };

    static void fetch(const Row& row) {
        const char* const end = row.at + row.bytes;
        // The line of the last byte too, where the row does not begin with a line.
        for (const char* p = row.at; p < end + kLine - 1; p += kLine) {
            const char* const in = p < end ? p : end - 1;
            if (row.use == Use::write)
                prefetch_to_write(in);
            else
                __builtin_prefetch(in, 0, 2);  // into the second level
        }
    }

    Row rows_[kMost];
    int64_t count_ = 0;
};

}  // namespace quire
