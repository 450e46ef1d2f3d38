// Four rows of floats <-> four columns of a matrix: what brings query rows into the lanes and outputs back.
// SSE, which every x86-64 has.
#pragma once
#include <xmmintrin.h>

#include <cstdint>

#include "src/format.h"

namespace quire {

// columns[d * stride + r] = change(rows[r][d]) for r in 0..4, d in 0..dim; change: __m128 -> __m128.
template <typename Change>
void rows_to_columns(const UnalignedFloat* const rows[4], int dim, float* columns, int64_t stride,
                     const Change& change) {
    int d = 0;
    for (; d + 4 <= dim; d += 4) {
        __m128 x[4];
        for (int r = 0; r < 4; ++r) x[r] = change(_mm_loadu_ps(reinterpret_cast<const float*>(rows[r] + d)));
        _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
        for (int r = 0; r < 4; ++r) _mm_storeu_ps(columns + (d + r) * stride, x[r]);
    }
    for (; d < dim; ++d)
        for (int r = 0; r < 4; ++r) _mm_store_ss(columns + d * stride + r, change(_mm_set_ss(rows[r][d])));
}

inline void rows_to_columns(const UnalignedFloat* const rows[4], int dim, float factor, float* columns,
                            int64_t stride) {
    const __m128 f = _mm_set1_ps(factor);
    rows_to_columns(rows, dim, columns, stride, [f](__m128 x) { return _mm_mul_ps(x, f); });
}

// The bits as they are, whatever they mean.
inline void rows_to_columns(const UnalignedFloat* const rows[4], int dim, float* columns, int64_t stride) {
    rows_to_columns(rows, dim, columns, stride, [](__m128 x) { return x; });
}

// rows[r * row_stride + d] = columns[d * stride + r] for r in 0..4, d in 0..dim.
inline void columns_to_rows(const float* columns, int64_t stride, int dim, float* rows, int64_t row_stride) {
    int d = 0;
    for (; d + 4 <= dim; d += 4) {
        __m128 x[4];
        for (int r = 0; r < 4; ++r) x[r] = _mm_loadu_ps(columns + (d + r) * stride);
        _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
        for (int r = 0; r < 4; ++r) _mm_storeu_ps(rows + r * row_stride + d, x[r]);
    }
    for (; d < dim; ++d)
        for (int r = 0; r < 4; ++r) rows[r * row_stride + d] = columns[d * stride + r];
}

}  // namespace quire
