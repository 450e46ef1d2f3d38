#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "jit/byte_loader.h"
#include "src/attend.h"

namespace quire {
namespace {

constexpr float kLargestByte = 127;

__m128 magnitude(__m128 x) { return _mm_andnot_ps(_mm_set1_ps(-0.f), x); }

// The largest magnitude of `count` numbers, a multiple of 4, at least kLeastTop; poison: 0, or NaN where NaN
// or Inf is among them.
float largest_of(const float* row, int count, float* poison) {
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

// Four lists of four numbers to the maxima (sums) of each.
__m128 largest_of_each(__m128* v) {
    _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
    return _mm_max_ps(_mm_max_ps(v[0], v[1]), _mm_max_ps(v[2], v[3]));
}
__m128 sum_of_each(__m128* v) {
    _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
    return _mm_add_ps(_mm_add_ps(v[0], v[1]), _mm_add_ps(v[2], v[3]));
}

// For each of L lanes the largest magnitude, at least `least`, of [lists][L][4] numbers.
void find_tops(const float* ordered, int lists, int lanes, float least, float* tops) {
    for (int lane = 0; lane < lanes; lane += 4) {
        __m128 top[4];
        for (int i = 0; i < 4; ++i) {
            top[i] = _mm_set1_ps(least);
            for (int list = 0; list < lists; ++list) {
                const __m128 x = _mm_loadu_ps(ordered + (list * lanes + lane + i) * 4);
                top[i] = _mm_max_ps(top[i], magnitude(x));
            }
        }
        _mm_storeu_ps(tops + lane, largest_of_each(top));
    }
}

// [spans][L]: what numbers are multiplied by, and QkArgs::factors.
void choose_factors(const float* tops, int spans, int lanes, float poison, float* inverses, float* factors) {
    for (int i = 0; i < spans * lanes; i += 4) {
        const __m128 top = _mm_loadu_ps(tops + i);
        const bool is_last = i >= (spans - 1) * lanes;
        _mm_storeu_ps(inverses + i, _mm_div_ps(_mm_set1_ps(kLargestByte), top));
        const __m128 factor =
            _mm_div_ps(top, is_last ? _mm_set1_ps(kLargestByte) : _mm_loadu_ps(tops + i + lanes));
        _mm_storeu_ps(factors + i, is_last ? _mm_add_ps(factor, _mm_set1_ps(poison)) : factor);
    }
}

// Four lanes of one list: rounded and stored as bytes, added to sums.
void round_lanes(const float* ordered, const float* inverses, int8_t* bytes, __m128* sums) {
    __m128i rounded[4];
    for (int i = 0; i < 4; ++i) {
        rounded[i] = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(ordered + 4 * i), _mm_set1_ps(inverses[i])));
        sums[i] = _mm_add_ps(sums[i], _mm_cvtepi32_ps(rounded[i]));
    }
    const __m128i low = _mm_packs_epi32(rounded[0], rounded[1]),
                  high = _mm_packs_epi32(rounded[2], rounded[3]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_packs_epi16(low, high));
}

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

// Four elements' digits, the highest first, from their numbers: stored, at `out`.
void store_digits(__m128i number, int digits, int8_t* out) {
    __m128i of[3] = {};  // the lowest first
    for (int i = 0; i + 1 < digits; ++i) {
        of[i] = _mm_srai_epi32(_mm_slli_epi32(number, 24), 24);
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

// The sum of four lanes, as of unsigned numbers.
uint32_t sum_of(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return uint32_t(_mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1))));
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
        float tops[4];
        _mm_storeu_ps(tops, _mm_max_ps(magnitude(x[0]), magnitude(x[1])));
        const float top = std::max(std::max(std::max(tops[0], tops[1]), std::max(tops[2], tops[3])), least);
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
                lows = _mm_add_epi32(lows, _mm_srai_epi32(_mm_slli_epi32(number, 24), 24));
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

void query_to_token_bytes(const jit::TokenBytesForm& form, const float* query, const QueryBytes& to) {
    float poison = 0;
    const float largest = largest_of(query, form.dim, &poison);
    if (form.digits == 1)
        round_token_bytes(form, query, std::max(jit::kLeastTop, largest * jit::kLeastShare), poison, to);
    else
        round_token_digits(form, query, largest, poison, to);
}

float query_to_words(const AttentionPlan& plan, const float* query, int16_t* words) {
    int16_t numbers[1 + kMostHeadDim];
    int16_t* const natural = numbers + 1;
    natural[-1] = 0;  // what the order has where there is no element
    const float factor = round_to_words(query, plan.key_stride, natural);
    for (const int element : plan.query_order) *words++ = natural[element];
    return factor;
}

void query_to_bytes(const AttentionPlan& plan, const float* query, const QueryBytes& to) {
    const quire_format& format = plan.spec.key_format;
    const int lanes = plan.target->lanes(), parts = jit::byte_parts(format),
              count = int(plan.byte_order.size());
    const int lists = count / (4 * lanes), span = jit::byte_span(format) * parts;
    float ordered[kMostHeadDim + 128], tops[128], inverses[128], poison = 0;
    for (int i = 0; i < count; ++i)
        ordered[i] = plan.byte_order[size_t(i)] < 0 ? 0 : query[plan.byte_order[size_t(i)]];
    const float least = std::max(jit::kLeastTop, largest_of(ordered, count, &poison) * jit::kLeastShare);
    for (int list = 0; list < lists; list += span)
        find_tops(ordered + list * lanes * 4, std::min(span, lists - list), lanes, least,
                  tops + list / span * lanes);
    choose_factors(tops, (lists + span - 1) / span, lanes, poison, inverses, to.factors);
    const float zero = float(jit::byte_zero(format));
    for (int first = 0; first < lists; first += parts)
        for (int lane = 0; lane < lanes; lane += 4) {
            __m128 sums[4] = {};
            for (int list = first; list < first + parts; ++list) {
                const int at = (list * lanes + lane) * 4;
                round_lanes(ordered + at, inverses + list / span * lanes + lane, to.bytes + at, sums);
            }
            const __m128 start = _mm_mul_ps(sum_of_each(sums), _mm_set1_ps(-zero));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to.starts + first / parts * lanes + lane),
                             _mm_cvtps_epi32(start));
        }
}

}  // namespace quire
