// What rounding of a query to bytes or words is relative to.
#pragma once
#include <emmintrin.h>

#include <algorithm>

#include "jit/args.h"

namespace quire {

constexpr float kLargestByte = 127;
// Numbers that share a factor are rounded relative to their largest, or to this share of the row's: what is
// smaller adds next to nothing to a score.
constexpr float kLeastShare = 1 / 1024.f;

inline __m128 magnitude(__m128 x) { return _mm_andnot_ps(_mm_set1_ps(-0.f), x); }

// The largest magnitude of `count` numbers, a multiple of 4, at least kLeastTop; poison: 0, or NaN where NaN
// or Inf is among them.
inline float largest_of(const float* row, int count, float* poison) {
    __m128 tops = _mm_set1_ps(jit::kLeastTop), poisons = _mm_setzero_ps();
    for (int d = 0; d < count; d += 4) {
        const __m128 x = _mm_loadu_ps(row + d);
        tops = _mm_max_ps(tops, magnitude(x));
        poisons = _mm_add_ps(poisons, _mm_mul_ps(x, _mm_setzero_ps()));
    }
    float top[4], p[4];
    _mm_storeu_ps(top, tops);
    _mm_storeu_ps(p, poisons);
    *poison = (p[0] + p[1]) + (p[2] + p[3]);
    return std::max(std::max(top[0], top[1]), std::max(top[2], top[3]));
}

}  // namespace quire
