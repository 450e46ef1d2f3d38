#include "src/copy.h"

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

void add_bias(quire_type type, const void* from, const void* bias, int dim, void* to) {
    if (type == QUIRE_F32) {  // a loop that the compiler can vectorise
        for (int d = 0; d < dim; ++d)
            static_cast<UnalignedFloat*>(to)[d] =
                static_cast<const UnalignedFloat*>(from)[d] + static_cast<const UnalignedFloat*>(bias)[d];
        return;
    }
    for (int d = 0; d < dim; ++d)
        store_number(type, to, d, load_number(type, from, d) + load_number(type, bias, d));
}

}  // namespace

void RowCopy::run_item(int64_t index) const {
    const int64_t b = index / blocks(), first = index % blocks() * kBlock;
    const int64_t count = std::min(kBlock, (counts ? counts(b) : rows) - first);
    if (count <= 0) return;
    const bool by_element = source_type() != type || to_size() != bytes_of(type, 1) ||
                            (from.base && from_size() != bytes_of(type, 1));
    for (int h = 0; h < heads; ++h)
        if (by_element)
            run_elements(b, first, count, h);
        else
            run_rows(b, first, count, h);
}

int64_t RowCopy::from_size() const {
    return from_step == kNextToEachOther ? bytes_of(source_type(), 1) : from_step;
}
int64_t RowCopy::to_size() const { return to_step == kNextToEachOther ? bytes_of(type, 1) : to_step; }

// Other types, or elements apart: by columns, which is how a transposed tensor has its elements together.
void RowCopy::run_elements(int64_t b, int64_t row, int64_t count, int head) const {
    const int64_t first = (begin ? begin(b) : 0) + row, from_first = (from_begin ? from_begin(b) : 0) + row;
    for (int d = 0; d < dim; ++d) {
        for (int64_t i = 0; i < count; ++i) {
            const float value =
                from.base ? load_number(source_type(), from.at(b, from_first + i, head) + d * from_size(), 0)
                          : 0;
            store_number(type, to.at(b, first + i, head) + d * to_size(), 0, value);
        }
    }
}

void RowCopy::run_rows(int64_t b, int64_t row, int64_t count, int head) const {
    const int64_t bytes = bytes_of(type, dim), first = (begin ? begin(b) : 0) + row;
    const int64_t from_first = (from_begin ? from_begin(b) : 0) + row;
    const bool dense = to.row_stride == bytes && (!from.base || from.row_stride == bytes);
    // Rows that follow each other directly are copied as one.
    const int64_t steps = dense && !bias ? 1 : count, size = dense && !bias ? count * bytes : bytes;
    for (int64_t i = 0; i < steps; ++i) {
        char* target = to.at(b, first + i, head);
        if (!from.base)
            std::memset(target, 0, size_t(size));
        else if (bias)
            add_bias(type, from.at(b, from_first + i, head), bias + head * bytes, dim, target);
        else
            std::memcpy(target, from.at(b, from_first + i, head), size_t(size));
    }
}

}  // namespace quire
