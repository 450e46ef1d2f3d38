#include <emmintrin.h>

#include <algorithm>

#include "src/attend.h"

namespace quire {

float round_to_words(const float* row, int count, bool swap_middle, int16_t* words) {
    const __m128 sign = _mm_set1_ps(-0.f);
    __m128 tops = _mm_set1_ps(jit::kLeastTop), poison = _mm_setzero_ps();
    for (int d = 0; d < count; d += 4) {
        const __m128 x = _mm_loadu_ps(row + d);
        tops = _mm_max_ps(tops, _mm_andnot_ps(sign, x));
        poison = _mm_add_ps(poison, _mm_mul_ps(x, _mm_setzero_ps()));
    }
    float top[4], poisons[4];
    _mm_storeu_ps(top, tops);
    _mm_storeu_ps(poisons, poison);
    const float largest = std::max(std::max(top[0], top[1]), std::max(top[2], top[3]));
    const __m128 factor = _mm_set1_ps(jit::kLargestWord / largest);
    for (int d = 0; d < count; d += 4) {
        const __m128i rounded = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(row + d), factor));
        __m128i packed = _mm_packs_epi32(rounded, rounded);
        if (swap_middle) packed = _mm_shufflelo_epi16(packed, _MM_SHUFFLE(3, 1, 2, 0));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(words + d), packed);
    }
    return largest / jit::kLargestWord + (poisons[0] + poisons[1]) + (poisons[2] + poisons[3]);
}

float query_to_words(const AttentionPlan& plan, const float* query, int16_t* words) {
    int16_t numbers[1 + 1024];
    int16_t* const natural = numbers + 1;
    natural[-1] = 0;  // what the order has where there is no element
    const float factor = round_to_words(query, plan.key_stride, false, natural);
    for (const int element : plan.query_order) *words++ = natural[element];
    return factor;
}

}  // namespace quire
