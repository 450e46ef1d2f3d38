#include "jit/row_layout.h"

namespace quire::jit {

int loader_step(const quire_format& format) { return format.type == QUIRE_INT4 ? 2 : 1; }

int row_vecs(const quire_format& format, int dim, int lanes) {
    const int step = loader_step(format), elements = step * lanes;
    return (dim + elements - 1) / elements * step;
}

int lane_element(const quire_format& format, int lanes, int index) {
    const int step = loader_step(format), elements = step * lanes;
    const int within = index % elements;
    return index / elements * elements + within % lanes * step + within / lanes;
}

int scale_stride(int scales, int lanes) { return (scales + lanes - 1) / lanes * lanes + lanes; }

}  // namespace quire::jit
