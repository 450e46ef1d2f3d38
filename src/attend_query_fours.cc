// A query row as QK of keys in fours takes it, where no generated code does it (jit/query_fours.h).
#include <emmintrin.h>

#include <algorithm>

#include "jit/qk_fours.h"
#include "src/attend.h"
#include "src/attend_query.h"

namespace quire {
namespace {

__m128i lowest_digit(__m128i number) { return _mm_srai_epi32(_mm_slli_epi32(number, 24), 24); }

// Factors of a query's numbers as words (FoursForm::weighs_words): of each two lanes the next whole number of
// units that is not below the larger one of `tops`.
__m128i word_factors(__m128 tops, float units) {
    tops = _mm_max_ps(tops, _mm_shuffle_ps(tops, tops, 0xb1));
    return _mm_cvtps_epi32(_mm_add_ps(_mm_mul_ps(tops, _mm_set1_ps(units)), _mm_set1_ps(.5f)));
}
// What numbers are multiplied by.
__m128 inverses_of(__m128i factors, float units, int largest) {
    return _mm_div_ps(_mm_set1_ps(units * float(largest)), _mm_cvtepi32_ps(factors));
}
// Both as two words, in all lanes.
__m128i both_words(__m128i factors) {
    return _mm_shuffle_epi32(_mm_packs_epi32(_mm_shuffle_epi32(factors, 0x88), factors), 0);
}

// The sum of four lanes, as of unsigned numbers.
uint32_t sum_of(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return uint32_t(_mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1))));
}

// The other two, signed, are at least -0x8080.
__m128i highest_of_three(__m128i number) {
    return _mm_srai_epi32(_mm_add_epi32(number, _mm_set1_epi32(0x8080)), 16);
}

// Dword j of 16 bytes, a quarter of a vector of 512 bits, of each part of a chunk.
struct Dword {
    int chunk, quarter, j;
};

class Fours {
public:
    Fours(const jit::FoursForm& form, const float* query, const QueryBytes& to)
        : form_(form), query_(query), to_(to) {}

    // Numbers in units of `factor`, the row's.
    void round_digits(float inverse) const {
        for_each_sum([&](const Dword& first) {
            __m128i sums = _mm_setzero_si128(), highest = sums;  // of three digits
            for (int i = 0; i < form_.run; ++i) {
                const Dword at = {first.chunk, first.quarter, first.j + i};
                for (int part = 0; part < form_.parts; ++part) {
                    const __m128i number = _mm_cvtps_epi32(_mm_mul_ps(load(at, part), _mm_set1_ps(inverse)));
                    store(at, part, number);
                    sums = _mm_add_epi32(sums, number);
                    highest = _mm_add_epi32(highest, highest_of_three(number));
                }
            }
            if (form_.chains() == 1) return start(first, 0, sum_of(sums));
            start(first, 0, sum_of(highest));
            start(first, 1, sum_of(_mm_sub_epi32(sums, _mm_slli_epi32(highest, 16))));
        });
    }

    // Each run in units of its own largest.
    void round_runs(float least, float poison) const {
        const float largest = float(form_.largest);
        for_each_sum([&](const Dword& first) {
            __m128 tops = _mm_set1_ps(least);
            for (int i = 0; i < form_.run; ++i)
                for (int part = 0; part < form_.parts; ++part)
                    tops = _mm_max_ps(tops, magnitude(load({first.chunk, first.quarter, first.j + i}, part)));
            const float top = largest_lane(tops), inverse = largest / top;
            uint32_t sum = 0;
            for (int i = 0; i < form_.run; ++i)
                for (int part = 0; part < form_.parts; ++part) {
                    const Dword at = {first.chunk, first.quarter, first.j + i};
                    const __m128i number = _mm_cvtps_epi32(_mm_mul_ps(load(at, part), _mm_set1_ps(inverse)));
                    store(at, part, number);
                    sum += sum_of(number);
                }
            start(first, 0, sum);
            const float factor = top / largest + poison;
            fill(to_.factors + (first.chunk * form_.runs() + first.j / form_.run) * form_.lanes, first,
                 _mm_castps_si128(_mm_set1_ps(factor)));
        });
    }

    // Each two elements of all parts in whole units (FoursForm::weighs_words).
    void round_words(float least, float units) const {
        for_each_sum([&](const Dword& first) {
            __m128i sums = _mm_setzero_si128();
            for (int i = 0; i < form_.run; ++i)
                sums = _mm_add_epi32(sums, weigh({first.chunk, first.quarter, first.j + i}, least, units));
            start(first, 0, sum_of(sums));
        });
    }

private:
    template <typename Body>
    void for_each_sum(const Body& body) const {
        for (int chunk = 0; chunk < form_.chunks; ++chunk)
            for (int j = 0; j < 4; j += form_.run)
                for (int quarter = 0; quarter < form_.lanes / 4; ++quarter) body(Dword{chunk, quarter, j});
    }

    // Four elements, each the next one or every second, of which those behind the last are 0.
    __m128 load(const Dword& at, int part) const {
        const int list = (at.chunk * form_.parts + part) * form_.lanes + 4 * at.quarter + at.j;
        const int* const elements = &form_.order[size_t(4 * list)];
        if (elements[0] < 0) return _mm_setzero_ps();
        const float* const x = query_ + elements[0];
        if (follow_each_other_) return _mm_loadu_ps(x);
        return _mm_shuffle_ps(_mm_loadu_ps(x), _mm_loadu_ps(x + 4), 0x88);
    }

    // What stands for four keys, at this quarter of a vector.
    void fill(void* vector, const Dword& at, __m128i four) const {
        _mm_storeu_si128(static_cast<__m128i*>(vector) + at.quarter, four);
    }

    void store(const Dword& at, int part, __m128i number) const {
        const int first = ((at.chunk * 4 + at.j) * form_.parts + part) * form_.digits;
        for (int digit = form_.digits - 1; digit >= 0; --digit) {
            const __m128i low = digit == 0 ? number : lowest_digit(number);
            number = _mm_srai_epi32(_mm_sub_epi32(number, low), 8);
            const __m128i words = _mm_packs_epi32(low, low);
            fill(to_.bytes + (first + digit) * form_.lanes * 4, at, _mm_packs_epi16(words, words));
        }
    }

    void start(const Dword& at, int chain, uint32_t sum) const {
        const int vector = (at.chunk * form_.runs() + at.j / form_.run) * form_.chains() + chain;
        fill(to_.starts + vector * form_.lanes, at, _mm_set1_epi32(int32_t(0 - uint32_t(form_.zero) * sum)));
    }

    // Returns what adds up to the sum of the numbers, each times its factor.
    __m128i weigh(const Dword& at, float least, float units) const {
        __m128 x[2], tops = _mm_set1_ps(least);
        for (int part = 0; part < form_.parts; ++part) {
            x[part] = load(at, part);
            tops = _mm_max_ps(tops, magnitude(x[part]));
        }
        const __m128i factors = word_factors(tops, units);
        const __m128 inverses = inverses_of(factors, units, form_.largest);
        __m128i sums = _mm_setzero_si128();
        for (int part = 0; part < form_.parts; ++part) {
            const __m128i number = _mm_cvtps_epi32(_mm_mul_ps(x[part], inverses));
            store(at, part, number);
            sums = _mm_add_epi32(sums, number);
        }
        fill(to_.factors + (at.chunk * 4 + at.j) * form_.lanes, at, both_words(factors));
        // Words, of which the upper ones of factors are 0.
        return _mm_madd_epi16(sums, factors);
    }

    const jit::FoursForm& form_;
    const float* const query_;
    const QueryBytes to_;
    const bool follow_each_other_ = form_.order[1] == 1;
};

}  // namespace

void query_to_fours(const jit::FoursForm& form, const float* query, int dim, const QueryBytes& to) {
    const Fours fours(form, query, to);
    const float largest = float(form.largest);
    float poison = 0;
    const float top = largest_of(query, (dim + 3) / 4 * 4, &poison),
                least = std::max(jit::kLeastTop, top * jit::kLeastShare);
    if (form.digits > 1) {
        fours.round_digits(largest / top);
        *to.factors = top / largest + poison;
    } else if (form.weighs_words) {
        fours.round_words(least, float(jit::kLargestFactor) / top);
        const float unit = top * (1 / (largest * float(jit::kLargestFactor))) + poison;
        std::fill_n(to.factors + form.words() * form.lanes, form.lanes, unit);
    } else {
        fours.round_runs(least, poison);
    }
}

}  // namespace quire
