// Rows of memory that are to be in the caches later: asked for a few at a time, between other work, as a
// processor tracks only so many misses at once.
#pragma once
#include <algorithm>
#include <cstdint>

namespace quire {

// The line at `at` is going to be written.
inline void prefetch_to_write(const void* at) {
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
}

class Ahead {
public:
    enum class Use { read, write };

    void clear() { lists_ = rows_ = 0; }
    bool empty() const { return rows_ == 0; }
    // `bytes` from each of `count` addresses on; the list is read until clear().
    void add(const char* const* rows, int64_t count, int64_t bytes, Use use) {
        if (count <= 0 || lists_ == kMost) return;
        list_[lists_++] = {rows, count, bytes, use};
        rows_ += count;
    }
    // The share of steps begin .. end of `steps`.
    void fetch(int64_t begin, int64_t end, int64_t steps) const {
        int64_t first = rows_ * begin / steps, left = rows_ * end / steps - first;
        for (int i = 0; i < lists_ && left > 0; ++i) {
            const List& list = list_[i];
            const int64_t taken = std::clamp<int64_t>(list.count - first, 0, left);
            fetch(list, first, taken);
            first = std::max<int64_t>(first - list.count, 0);
            left -= taken;
        }
    }

private:
    static constexpr int kMost = 8;
    static constexpr uintptr_t kLine = 64;
    struct List {
        const char* const* rows;
        int64_t count, bytes;
        Use use;
    };

    // Lines that follow each other, of short rows side by side (scales), are asked for once.
    static void fetch(const List& list, int64_t first, int64_t count) {
        uintptr_t before = 0;
        for (int64_t i = first; i < first + count; ++i) {
            const auto row = reinterpret_cast<uintptr_t>(list.rows[i]);
            for (uintptr_t line = row / kLine * kLine; line < row + uintptr_t(list.bytes); line += kLine)
                if (line != before) fetch_line(before = line, list.use);
        }
    }
    static void fetch_line(uintptr_t line, Use use) {
        const void* const at = reinterpret_cast<const void*>(line);
        if (use == Use::write)
            prefetch_to_write(at);
        else
            __builtin_prefetch(at, 0, 2);  // into the second level
    }

    List list_[kMost];
    int lists_ = 0;
    int64_t rows_ = 0;
};

}  // namespace quire
