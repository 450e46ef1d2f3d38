// The query as jit/qk_fours.h takes it.
#include "jit/qk_fours.h"
#include "src/attend.h"
#include "src/attend_query_largest.h"

namespace quire {
namespace {

// Of `count` fours of numbers that follow each other.
float largest_of_run(const float* x, int count, float least) {
    __m128 top = _mm_set1_ps(least);
    for (int i = 0; i < count; ++i) top = _mm_max_ps(top, magnitude(_mm_loadu_ps(x + 4 * i)));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_shuffle_ps(top, top, 1)));
}

int32_t low_bytes(__m128i words) {  // of four int32 that fit a byte
    const __m128i packed = _mm_packs_epi32(words, words);
    return _mm_cvtsi128_si32(_mm_packs_epi16(packed, packed));
}

int32_t sum_of(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, _MM_SHUFFLE(2, 3, 0, 1))));
}

// All but the lowest digit of each.
__m128i upper_digits(__m128i words) { return _mm_srai_epi32(_mm_add_epi32(words, _mm_set1_epi32(128)), 8); }

// For all four keys.
void store_dword(void* to, int32_t dword) {
    _mm_storeu_si128(static_cast<__m128i*>(to), _mm_set1_epi32(dword));
}

class Fours {
public:
    Fours(const jit::FoursForm& form, const float* query, const QueryBytes& to)
        : form_(form), to_(to), count_(int(form.order.size())) {
        for (int i = 0; i < count_; ++i)
            ordered_[i] = form.order[size_t(i)] < 0 ? 0 : query[form.order[size_t(i)]];
        top_ = largest_of(ordered_, count_, &poison_);
        if (form.digits > 1) {
            const float largest = float(jit::largest_digits(form.digits));
            to.factors[0] = top_ / largest + poison_;
            inverse_ = largest / top_;
        }
        for (int chunk = 0; chunk < form.chunks; ++chunk)
            for (int first = 0; first < 4; first += form.run)
                for (int quarter = 0; quarter < form.lanes / 4; ++quarter) round(chunk, first, quarter);
    }

private:
    // Dword 4 * quarter + j of a part, as four numbers.
    int at(int chunk, int part, int quarter, int j) const {
        return (((chunk * form_.parts + part) * form_.lanes) + 4 * quarter + j) * 4;
    }

    // A run of one quarter of the lanes: what a lane of the kernel sums up.
    void round(int chunk, int first, int quarter) {
        const int run = chunk * form_.runs() + first / form_.run;
        if (form_.digits == 1)
            choose_factor(chunk, first, quarter, to_.factors + run * form_.lanes + 4 * quarter);
        __m128i sum = _mm_setzero_si128(), high = _mm_setzero_si128();
        for (int j = first; j < first + form_.run; ++j)
            for (int part = 0; part < form_.parts; ++part) {
                const __m128 x = _mm_loadu_ps(ordered_ + at(chunk, part, quarter, j));
                const __m128i rounded = _mm_cvtps_epi32(_mm_mul_ps(x, _mm_set1_ps(inverse_)));
                const __m128i top = form_.digits == 3 ? upper_digits(upper_digits(rounded)) : high;
                high = form_.digits == 3 ? _mm_add_epi32(high, top) : high;
                sum = _mm_add_epi32(sum, _mm_sub_epi32(rounded, _mm_slli_epi32(top, 16)));
                const int vector = ((chunk * 4 + j) * form_.parts + part) * form_.digits;
                store(to_.bytes + (vector * form_.lanes + 4 * quarter) * 4, rounded);
            }
        int32_t* const starts = to_.starts + run * form_.chains() * form_.lanes + 4 * quarter;
        if (form_.digits == 3) store_start(starts, high);
        store_start(starts + (form_.chains() - 1) * form_.lanes, sum);
    }

    void store_start(int32_t* to, __m128i sum) const {
        store_dword(to, int32_t(uint32_t(-form_.zero) * uint32_t(sum_of(sum))));
    }

    void choose_factor(int chunk, int first, int quarter, float* factors) {
        float top = std::max(jit::kLeastTop, top_ * kLeastShare);
        for (int part = 0; part < form_.parts; ++part)
            top = largest_of_run(ordered_ + at(chunk, part, quarter, first), form_.run, top);
        inverse_ = kLargestByte / top;
        _mm_storeu_ps(factors, _mm_set1_ps(top / kLargestByte + poison_));
    }

    void store(int8_t* to, __m128i words) const {
        for (int digit = form_.digits - 1; digit > 0; --digit) {
            const __m128i upper = upper_digits(words);
            store_dword(to + digit * form_.lanes * 4,
                        low_bytes(_mm_sub_epi32(words, _mm_slli_epi32(upper, 8))));
            words = upper;
        }
        store_dword(to, low_bytes(words));
    }

    const jit::FoursForm& form_;
    const QueryBytes& to_;
    const int count_;
    float ordered_[kMostHeadDim + 128], top_ = 0, poison_ = 0, inverse_ = 0;
};

}  // namespace

void query_to_fours(const jit::FoursForm& form, const float* query, const QueryBytes& to) {
    Fours(form, query, to);
}

}  // namespace quire
