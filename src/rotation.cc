#include "src/rotation.h"

#include <cmath>

#include "src/format.h"

namespace quire {
namespace {

// (x, y) -> (x cos - y sin, y cos + x sin), each with one rounding of the second product and one of the sum.
void rotate_pair(float cos, float sin, float* x, float* y) {
    const float first = std::fma(*x, cos, -(*y * sin)), second = std::fma(*y, cos, *x * sin);
    *x = first;
    *y = second;
}

// The Walsh-Hadamard transform of each block, in place: strides 1, 2, 4, ..., and at the end 1 / sqrt(block).
void rotate_blocks(int block, int dim, float* values) {
    const float scale = float(1 / std::sqrt(double(block)));
    for (int stride = 1; stride < block; stride *= 2)
        for (int i = 0; i < dim; ++i) {
            if (i & stride) continue;
            const float a = values[i], b = values[i + stride];
            values[i] = a + b;
            values[i + stride] = a - b;
        }
    for (int i = 0; i < dim; ++i) values[i] *= scale;
}

}  // namespace

std::string Rotation::name() const {
    std::string text;
    if (rotary == QUIRE_ROTARY_HALVES) text += "_halves" + std::to_string(rotary_dim);
    if (rotary == QUIRE_ROTARY_INTERLEAVED) text += "_interleaved" + std::to_string(rotary_dim);
    if (block != 0) text += "_hadamard" + std::to_string(block);
    return text;
}

int hadamard_block(int dim) { return dim & -dim; }

void rotate_row(const Rotation& rotation, int dim, const float* cos, const float* sin, float* values) {
    const int half = rotation.rotary_dim / 2;
    const bool halves = rotation.rotary == QUIRE_ROTARY_HALVES;
    for (int i = 0; rotation.rotary != QUIRE_ROTARY_NONE && i < half; ++i)
        rotate_pair(load_number(QUIRE_F32, cos, i), load_number(QUIRE_F32, sin, i),
                    values + (halves ? i : 2 * i), values + (halves ? i + half : 2 * i + 1));
    if (rotation.block != 0) rotate_blocks(rotation.block, dim, values);
}

}  // namespace quire
