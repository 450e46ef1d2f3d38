#include "jit/row_loader.h"

#include <algorithm>

#include "jit/row_loader_blocks.h"
#include "jit/row_loader_int4.h"
#include "jit/row_loader_int8.h"
#include "jit/row_loader_number.h"

namespace quire::jit {

std::unique_ptr<RowLoader> RowLoader::make(Emitter& e, const quire_format& format, int dim) {
    if (const BlockInfo* block = block_info(format.type))
        return std::make_unique<BlockRowLoader>(e, format, dim, *block);
    switch (format.type) {
        case QUIRE_INT8: return std::make_unique<Int8RowLoader>(e, format, dim);
        case QUIRE_INT4: return std::make_unique<Int4RowLoader>(e, format, dim);
        default: return std::make_unique<NumberRowLoader>(e, format, dim);
    }
}

void RowLoader::load(const Vec& out, int vec, const RegExp& row, const RegExp& scales) {
    load_codes(out, vec, row);
    scale(out, vec, scales);
}

void RowLoader::load_codes(const Vec& out, int vec, const RegExp& row) {
    const int first = vec * e_.lanes();
    load_numbers(out, first, std::min(e_.lanes(), dim_ - first), row);
}

// Group of each lane's element; padding repeats the last.
std::vector<int> RowLoader::groups_of(int vec) const {
    const int lanes = e_.lanes();
    std::vector<int> groups;
    for (int lane = 0; lane < lanes; ++lane) {
        const int element = std::min(vec * lanes + lane, dim_ - 1);
        groups.push_back(element / format_.quant_group);
    }
    return groups;
}

void RowLoader::scale(const Vec& v, int vec, const RegExp& scales) {
    if (!is_quantised(format_)) return;
    const std::vector<int> groups = groups_of(vec);
    if (groups.front() == groups.back()) return e_.multiply_by_scalar(v, scales + groups.front() * 4);
    Temp factors(e_, "scale.factors");
    e_.load_lanes(factors, scales, groups);
    e_.vmulps(v, v, factors);
}

}  // namespace quire::jit
