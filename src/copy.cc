#include "src/copy.h"

#include <cstring>

namespace quire {
namespace {

void add_bias(quire_type type, const void* from, const void* bias, int dim, void* to) {
    if (type == QUIRE_F32) {  // a loop that the compiler can vectorise
        for (int d = 0; d < dim; ++d)
            static_cast<float*>(to)[d] =
                static_cast<const float*>(from)[d] + static_cast<const float*>(bias)[d];
        return;
    }
    for (int d = 0; d < dim; ++d)
        store_number(type, to, d, load_number(type, from, d) + load_number(type, bias, d));
}

}  // namespace

void RowCopy::run_item(int64_t index) const {
    const int64_t b = index / rows, row = index % rows;
    if (counts && row >= counts(b)) return;
    const int64_t target = (begin ? begin(b) : 0) + row;
    const size_t bytes = size_t(bytes_of(type, dim));
    for (int h = 0; h < heads; ++h) {
        if (!from.base)
            std::memset(to.at(b, target, h), 0, bytes);
        else if (bias)
            add_bias(type, from.at(b, row, h), bias + size_t(h) * bytes, dim, to.at(b, target, h));
        else
            std::memcpy(to.at(b, target, h), from.at(b, row, h), bytes);
    }
}

}  // namespace quire
