#include "src/copy.h"

#include <cstring>

namespace quire {

void RowCopy::run_item(int64_t index) const {
    const int64_t b = index / rows, row = index % rows;
    for (int h = 0; h < heads; ++h) {
        const char* source = from.at(b, row, h / repeat);
        char* target = to.at(b, row, h);
        if (bias == nullptr && from_type == to_type) {
            std::memcpy(target, source, size_t(dim) * size_t(type_bits(from_type)) / 8);
            continue;
        }
        for (int d = 0; d < dim; ++d) {
            float value = load_number(from_type, source, d);
            if (bias) value += load_number(bias_type, bias, int64_t(h / repeat) * dim + d);
            store_number(to_type, target, d, value);
        }
    }
}

}  // namespace quire
