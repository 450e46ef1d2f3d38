#include "src/attend_ahead.h"

namespace quire {
namespace {

// Rows that are looked at together: with one after the other, decode of few rows spends a twentieth on it.
constexpr int kSpan = 16;

// Whether the next kSpan rows lie side by side, but for less than a line between them.
bool is_span(const char* const* rows, int64_t count, int64_t bytes) {
    if (count < kSpan) return false;
    const auto at = [&](int i) { return reinterpret_cast<uintptr_t>(rows[i]); };
    return at(1) - at(0) < uintptr_t(bytes) + jit::kLineBytes &&
           at(kSpan - 1) - at(0) == (kSpan - 1) * (at(1) - at(0));
}

// Rows that have nothing between them, from the first on.
int64_t side_by_side(const char* const* rows, int64_t count, int64_t bytes) {
    int64_t i = 1;
    while (i < count && rows[i] == rows[i - 1] + bytes) ++i;
    return i;
}

// Whether so many of them do so again, as the heads of the next token.
bool follow(const char* const* rows, int64_t left, int64_t count, int64_t bytes) {
    return count <= left && rows[count - 1] == rows[0] + (count - 1) * bytes;
}

}  // namespace

void Ahead::add(const char* const* rows, int64_t count, int64_t bytes, uintptr_t use) {
    for (int64_t i = 0, together = 1; i < count; i += together) {
        const int64_t left = count - i;
        if (together == 1 || !follow(rows + i, left, together, bytes))
            together = is_span(rows + i, left, bytes) ? kSpan : side_by_side(rows + i, left, bytes);
        const auto end = reinterpret_cast<uintptr_t>(rows[i + together - 1]) + uintptr_t(bytes);
        if (!add_piece(reinterpret_cast<uintptr_t>(rows[i]), end, use)) return;
    }
}

}  // namespace quire
