// Memory that is to be in the caches later: the products of tiles ask for its lines all through their work
// (jit/args.h: LinesAhead).
#pragma once
#include <algorithm>
#include <cstdint>

#include "jit/args.h"

namespace quire {

class Ahead {
public:
    void clear() { runs_ = 0; }
    // `bytes` from each of `count` addresses on. What there is no room for is left out. use: jit::kWritten
    // where they are going to be written.
    template <typename Row>
    void add(const Row* const* rows, int64_t count, int64_t bytes, uintptr_t use = 0) {
        for (int64_t i = 0, of_span = 0; i < count; i += of_span) {
            of_span = is_span(rows + i, count - i, bytes) ? kSpan : side_by_side(rows + i, count - i, bytes);
            const auto end = reinterpret_cast<uintptr_t>(rows[i + of_span - 1]) + uintptr_t(bytes);
            if (!add_piece(reinterpret_cast<uintptr_t>(rows[i]), end, use)) return;
        }
    }
    // The same of rows side by side, by their first.
    void add_adjacent(const char* first, int64_t count, int64_t bytes) {
        const auto begin = reinterpret_cast<uintptr_t>(first);
        add_piece(begin, begin + uintptr_t(count * bytes), 0);
    }

    // For kernels, from the first line on. There always is one, which may be asked for again and again.
    jit::LinesAhead* begin() {
        run_[runs_] = {0, 0};
        state_ = {reinterpret_cast<uintptr_t>(this), 0, run_, kLine};
        return &state_;
    }
    // Asks for what they have left.
    void finish() {
        while (state_.step > 0) {
            __builtin_prefetch(reinterpret_cast<const void*>(state_.line), 0, 2);
            state_.line += kLine;
            if (state_.line < state_.end) continue;
            if (state_.next->begin == 0) return;
            state_ = {state_.next->begin, state_.next->end, state_.next + 1, kLine};
        }
    }

private:
    // False: there is no room for it.
    bool add_piece(uintptr_t row, uintptr_t end, uintptr_t use) {
        const uintptr_t begin = row / kLine * kLine + use;
        if (runs_ > 0) {
            jit::LineRun& last = run_[runs_ - 1];
            if (begin >= last.begin && begin < last.end + kLine) {  // short rows side by side share lines
                last.end = std::max(last.end, end);
                return true;
            }
        }
        if (runs_ == kMost) return false;
        run_[runs_++] = {begin, end};
        return true;
    }

    // Rows that are looked at together: with one after the other, decode of few rows spends a twentieth on
    // it.
    static constexpr int kSpan = 16;
    // Whether the next kSpan rows lie side by side, by the first two and the last. Those between are asked
    // for in vain where they lie elsewhere.
    template <typename Row>
    static bool is_span(const Row* const* rows, int64_t count, int64_t bytes) {
        if (count < kSpan) return false;
        const auto at = [&](int i) { return reinterpret_cast<uintptr_t>(rows[i]); };
        return at(1) - at(0) < uintptr_t(bytes) + kLine &&
               at(kSpan - 1) - at(0) == (kSpan - 1) * (at(1) - at(0));
    }

    // Rows that have nothing between them, from the first on.
    template <typename Row>
    static int64_t side_by_side(const Row* const* rows, int64_t count, int64_t bytes) {
        int64_t i = 1;
        while (i < count && rows[i] == rows[i - 1] + bytes) ++i;
        return i;
    }

    static constexpr int kMost = 767;
    static constexpr uintptr_t kLine = jit::kLineBytes;
    jit::LineRun run_[kMost + 1];
    int runs_ = 0;
    jit::LinesAhead state_;
};

}  // namespace quire
