#include "src/attend_query.h"

#include "src/attend.h"

namespace quire {
namespace {

// `count` floats, a multiple of 4, as words of 15 bits and a sign; returns what they are to be multiplied by.
// NaN or Inf among them makes that NaN.
float round_to_words(const float* row, int count, int16_t* words) {
    float poison = 0;
    const float largest = largest_of(row, count, &poison);
    const __m128 factor = _mm_set1_ps(jit::kLargestWord / largest);
    for (int d = 0; d < count; d += 4) {
        const __m128i rounded = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(row + d), factor));
        const __m128i packed = _mm_packs_epi32(rounded, rounded);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(words + d), packed);
    }
    return largest / jit::kLargestWord + poison;
}

}  // namespace

float largest_of(const float* row, int count, float* poison) {
    __m128 tops = _mm_set1_ps(jit::kLeastTop), poisons = _mm_setzero_ps();
    for (int d = 0; d < count; d += 4) {
        const __m128 x = _mm_loadu_ps(row + d);
        tops = _mm_max_ps(tops, magnitude(x));
        poisons = _mm_add_ps(poisons, _mm_mul_ps(x, _mm_setzero_ps()));
    }
    float p[4];
    _mm_storeu_ps(p, poisons);
    *poison = (p[0] + p[1]) + (p[2] + p[3]);
    return largest_lane(tops);
}

float query_to_words(const std::vector<int>& order, int stride, const float* query, int16_t* words) {
    int16_t numbers[1 + kMostHeadDim];
    int16_t* const natural = numbers + 1;
    natural[-1] = 0;  // what the order has where there is no element
    const float factor = round_to_words(query, stride, natural);
    for (const int element : order) *words++ = natural[element];
    return factor;
}

}  // namespace quire
