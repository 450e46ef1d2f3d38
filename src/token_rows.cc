#include "src/token_rows.h"

#include <algorithm>

namespace quire {
namespace {

constexpr size_t kKeys = jit::kTileKeys;

size_t row_bytes(const quire_format& format, int dim) {
    return size_t(bytes_of(row_format(format).type, dim));
}
size_t scale_bytes(const quire_format& format, int dim) { return 2 * size_t(dim / format.quant_group); }

}  // namespace

size_t TakenRows::floats(const quire_format& format, int dim) {
    if (!token_block_info(format.type)) return 0;
    const size_t pointers = 2 * kKeys * sizeof(char*);
    return (pointers + kKeys * (row_bytes(format, dim) + scale_bytes(format, dim))) / sizeof(float) + 64;
}

TakenRows::TakenRows(size_t floats, Scratch& scratch) {
    if (floats == 0) return;
    bytes_ = reinterpret_cast<char*>(scratch.floats(floats));
    rows_ = reinterpret_cast<const char**>(bytes_);
    scales_ = rows_ + kKeys;
    bytes_ = reinterpret_cast<char*>(scales_ + kKeys);
}

void TakenRows::take(const jit::Kernel<jit::TokenRowsArgs>& kernel, const quire_format& format, int dim,
                     const RowAddresses& block, const char* const** rows, const char* const** scales) {
    if (!kernel) return;
    const size_t row = row_bytes(format, dim), scale = scale_bytes(format, dim);
    char* const of_scales = bytes_ + kKeys * row;
    kernel({*rows, bytes_, of_scales, block.padded()});
    for (int64_t i = 0; i < block.padded(); ++i) {
        const size_t from =
            size_t(std::min(i, block.count - 1));  // what a block holds after the last is dead
        rows_[i] = bytes_ + from * row;
        scales_[i] = of_scales + from * scale;
    }
    *rows = rows_;
    *scales = scales_;
}

}  // namespace quire
