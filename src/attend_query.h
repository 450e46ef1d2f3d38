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

// Four elements' digits, the highest first, from their numbers: stored, at `out`.
void store_digits(__m128i number, int digits, int8_t* out);
inline __m128i lowest_digit(__m128i number) { return _mm_srai_epi32(_mm_slli_epi32(number, 24), 24); }

// Factors of a query's numbers as words (FoursForm::weighs_words): of each two lanes the next whole number of
// units that is not below the larger one of `tops`.
inline __m128i word_factors(__m128 tops, float units) {
    tops = _mm_max_ps(tops, _mm_shuffle_ps(tops, tops, 0xb1));
    return _mm_cvtps_epi32(_mm_add_ps(_mm_mul_ps(tops, _mm_set1_ps(units)), _mm_set1_ps(.5f)));
}
// What numbers are multiplied by.
inline __m128 inverses_of(__m128i factors, float units, int largest) {
    return _mm_div_ps(_mm_set1_ps(units * float(largest)), _mm_cvtepi32_ps(factors));
}
// Both as two words, in all lanes.
inline __m128i both_words(__m128i factors) {
    return _mm_shuffle_epi32(_mm_packs_epi32(_mm_shuffle_epi32(factors, 0x88), factors), 0);
}

// The sum of four lanes, as of unsigned numbers.
inline uint32_t sum_of(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return uint32_t(_mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1))));
}

}  // namespace quire
