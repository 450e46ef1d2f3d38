// Where a row's elements are in lanes, and a row's scales in scratch: plain numbers, known without an
// emitter.
#pragma once
#include "src/format.h"

namespace quire::jit {

// Vectors that one step of the format's loader gives.
int loader_step(const quire_format& format);
// Vectors of a whole row, a multiple of loader_step.
int row_vecs(const quire_format& format, int dim, int lanes);
// The element of the row that lies in lane `index` (of row_vecs * lanes); >= dim: padding, which reads as 0.
int lane_element(const quire_format& format, int lanes, int index);
// Floats from one row's f32 scales to the next: room for whole vectors from any scale on.
int scale_stride(int scales, int lanes);

}  // namespace quire::jit
