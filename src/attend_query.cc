#include "src/attend_query.h"

#include <cstring>

#include "src/attend.h"

namespace quire {
namespace {

constexpr float kLargestByte = 127;

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

// Eight elements as the kernel has them beside a dword of codes, or two.
void load_eight(const jit::TokenBytesForm& form, const float* at, __m128* x) {
    const __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + 4);
    x[0] = form.is_nibbles ? _mm_shuffle_ps(a, b, 0x88) : a;
    x[1] = form.is_nibbles ? _mm_shuffle_ps(a, b, 0xdd) : b;
}

// One byte each, with a factor for every eight (TokenBytesForm::factors).
void round_token_bytes(const jit::TokenBytesForm& form, const float* query, float least, float poison,
                       const QueryBytes& to) {
    for (int d = 0; d < form.dim; d += 8) {
        __m128 x[2];
        load_eight(form, query + d, x);
        const float top = std::max(largest_lane(_mm_max_ps(magnitude(x[0]), magnitude(x[1]))), least);
        uint32_t sum = 0;
        for (int i = 0; i < 2; ++i) {
            const __m128i number = _mm_cvtps_epi32(_mm_mul_ps(x[i], _mm_set1_ps(kLargestByte / top)));
            store_digits(number, 1, to.bytes + d + 4 * i);
            sum += sum_of(number);
        }
        const uint32_t start = 0 - uint32_t(form.zero) * sum;
        std::memcpy(to.factors + d / 4, &start, sizeof(start));
        to.factors[d / 4 + 1] = top / kLargestByte + poison;
    }
}

// One byte each, with a factor for every two of a dword (TokenBytesForm::weighs_words).
void round_token_words(const jit::TokenBytesForm& form, const float* query, float largest, float poison,
                       const QueryBytes& to) {
    const float least = std::max(jit::kLeastTop, largest * jit::kLeastShare),
                units = float(form.largest_factor) / largest;
    for (int first = 0; first < form.dim; first += form.run) {
        __m128i sums = _mm_setzero_si128();
        for (int d = first; d < first + form.run; d += 8) {
            __m128 x[2];
            load_eight(form, query + d, x);
            for (int i = 0; i < 2; ++i) {
                const __m128i factors = word_factors(_mm_max_ps(magnitude(x[i]), _mm_set1_ps(least)), units);
                const __m128i number =
                    _mm_cvtps_epi32(_mm_mul_ps(x[i], inverses_of(factors, units, form.largest)));
                int8_t* const at = to.bytes + (d + 4 * i) * form.dwords();
                store_digits(number, 1, at);
                const int words = _mm_cvtsi128_si32(both_words(factors));
                std::memcpy(at + 4, &words, sizeof(words));
                sums = _mm_add_epi32(sums, _mm_madd_epi16(number, factors));
            }
        }
        to.starts[first / form.run] = int32_t(0 - uint32_t(form.zero) * sum_of(sums));
    }
    *to.factors = largest * (1 / (float(form.largest) * float(form.largest_factor))) + poison;
}

// Two or three digits, with a factor for the row.
void round_token_digits(const jit::TokenBytesForm& form, const float* query, float largest, float poison,
                        const QueryBytes& to) {
    const float top = float(jit::largest_digits(form.digits));
    const __m128 inverse = _mm_set1_ps(top / largest);
    for (int first = 0; first < form.dim; first += form.run) {
        __m128i sums = _mm_setzero_si128(), lows = _mm_setzero_si128();
        for (int d = first; d < first + form.run; d += 8) {
            __m128 x[2];
            load_eight(form, query + d, x);
            for (int i = 0; i < 2; ++i) {
                const __m128i number = _mm_cvtps_epi32(_mm_mul_ps(x[i], inverse));
                store_digits(number, form.digits, to.bytes + (d + 4 * i) * form.digits);
                sums = _mm_add_epi32(sums, number);
                lows = _mm_add_epi32(lows, lowest_digit(number));
            }
        }
        int32_t* const starts = to.starts + first / form.run * form.chains;
        const auto set = [&](int chain, uint32_t sum) {
            starts[chain] = int32_t(0 - uint32_t(form.zero) * sum);
        };
        if (form.chains == 1) {
            set(0, sum_of(sums));
        } else {
            set(0, uint32_t(int32_t(sum_of(_mm_sub_epi32(sums, lows))) / 256));
            set(1, sum_of(lows));
        }
    }
    *to.factors = largest / top + poison;
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

void store_digits(__m128i number, int digits, int8_t* out) {
    __m128i of[3] = {};  // the lowest first
    for (int i = 0; i + 1 < digits; ++i) {
        of[i] = lowest_digit(number);
        number = _mm_srai_epi32(_mm_sub_epi32(number, of[i]), 8);
    }
    of[digits - 1] = number;
    const __m128i zero = _mm_setzero_si128();
    const __m128i first = _mm_packs_epi32(of[digits - 1], digits > 1 ? of[digits - 2] : zero);
    const __m128i bytes = _mm_packs_epi16(first, _mm_packs_epi32(of[0], zero));
    alignas(16) int8_t all[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(all), bytes);
    std::memcpy(out, all, size_t(4 * digits));
}

void query_to_token_bytes(const jit::TokenBytesForm& form, const float* query, const QueryBytes& to) {
    float poison = 0;
    const float largest = largest_of(query, form.dim, &poison);
    if (form.by_eights())
        round_token_bytes(form, query, std::max(jit::kLeastTop, largest * jit::kLeastShare), poison, to);
    else if (form.weighs_words)
        round_token_words(form, query, largest, poison, to);
    else
        round_token_digits(form, query, largest, poison, to);
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
