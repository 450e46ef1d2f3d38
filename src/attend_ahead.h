// Memory that is to be in the caches later: the products of tiles ask for its lines all through their work
// (jit/lines_ahead.h).
#pragma once
#include <algorithm>
#include <cstdint>

#include "jit/args.h"

namespace quire {

class Ahead {
public:
    void clear() { runs_ = marked_ = 0; }
    // What has been added until now; later, whether kernels have come to its last run or further.
    void mark() { marked_ = runs_; }
    bool is_past_mark() const { return state_.step == 0 || state_.next > run_ + marked_; }
    // `bytes` from each of `count` addresses on. What there is no room for is left out. use: of
    // jit::kWritten, kSecondLevel. Rows that look as if they lay side by side, by the first and the
    // last of some, are asked for as one: those between in vain where they lie elsewhere.
    void add(const char* const* rows, int64_t count, int64_t bytes, uintptr_t use = 0);
    // The same of rows side by side, by their first.
    void add_adjacent(const char* first, int64_t count, int64_t bytes, uintptr_t use) {
        const auto begin = reinterpret_cast<uintptr_t>(first);
        add_piece(begin, begin + uintptr_t(count * bytes), use);
    }

    // The same of rows that lie apart, but for some that are one, from a byte on.
    void add_apart(const char* const* rows, int64_t count, int64_t first, int64_t bytes) {
        for (int64_t i = 0; i < count; ++i) {
            if (i > 0 && rows[i] == rows[i - 1]) continue;
            const auto begin = reinterpret_cast<uintptr_t>(rows[i]) + uintptr_t(first);
            if (!add_piece(begin, begin + uintptr_t(bytes), 0)) return;
        }
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

    static constexpr int kMost = 767;
    static constexpr uintptr_t kLine = jit::kLineBytes;
    jit::LineRun run_[kMost + 1];
    int runs_ = 0, marked_ = 0;
    jit::LinesAhead state_;
};

}  // namespace quire
