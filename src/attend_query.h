// What the ways to round a query row have in common (src/attend_query*.cc).
#pragma once
#include <emmintrin.h>

#include <algorithm>
#include <cstdint>

namespace quire {

inline __m128 magnitude(__m128 x) { return _mm_andnot_ps(_mm_set1_ps(-0.f), x); }

inline float largest_lane(__m128 x) {
    float of[4];
    _mm_storeu_ps(of, x);
    return std::max(std::max(of[0], of[1]), std::max(of[2], of[3]));
}

// The largest magnitude of `count` numbers, a multiple of 4, at least kLeastTop; poison: 0, or NaN where NaN
// or Inf is among them.
float largest_of(const float* row, int count, float* poison);

}  // namespace quire
