// Four rows of floats as four columns of a matrix: what brings score terms into the lanes where they are more
// than a mask of numbers. SSE, which every x86-64 has.
#pragma once
#include <xmmintrin.h>

#include <cstdint>

#include "src/format.h"

namespace quire {

// columns[d * stride + r] = rows[r][d] for r in 0..4, d in 0..dim.
inline void rows_to_columns(const UnalignedFloat* const rows[4], int dim, float* columns, int64_t stride) {
    int d = 0;
    for (; d + 4 <= dim; d += 4) {
        __m128 x[4];
        for (int r = 0; r < 4; ++r) x[r] = _mm_loadu_ps(reinterpret_cast<const float*>(rows[r] + d));
        _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
        for (int r = 0; r < 4; ++r) _mm_storeu_ps(columns + (d + r) * stride, x[r]);
    }
    for (; d < dim; ++d)
        for (int r = 0; r < 4; ++r) columns[d * stride + r] = rows[r][d];
}

}  // namespace quire
