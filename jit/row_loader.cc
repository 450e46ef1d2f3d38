#include "jit/row_loader.h"

#include <algorithm>

#include "jit/row_loader_int4.h"
#include "jit/row_loader_int8.h"
#include "jit/row_loader_number.h"

namespace quire::jit {

std::unique_ptr<RowLoader> RowLoader::make(Emitter& e, const quire_format& format, int dim) {
    switch (format.type) {
        case QUIRE_INT8: return std::make_unique<Int8RowLoader>(e, format, dim);
        case QUIRE_INT4: return std::make_unique<Int4RowLoader>(e, format, dim);
        default: return std::make_unique<NumberRowLoader>(e, format, dim);
    }
}

void RowLoader::load(const Vec* out, int vec, const RegExp& row, const RegExp& scales) {
    const int elements = step() * e_.lanes(), first = vec / step() * elements;
    load_numbers(out, first, std::min(elements, dim_ - first), row);
    if (!is_quantised(format_)) return;
    const std::vector<int> groups = groups_of(vec);
    if (step() == 2 && groups == groups_of(vec + 1)) {
        Temp factors(e_, "scale.factors");
        load_factors(factors, groups, scales);
        for (int i = 0; i < 2; ++i) e_.vmulps(out[i], out[i], factors);
        return;
    }
    for (int i = 0; i < step(); ++i) scale(out[i], groups_of(vec + i), scales);
}

// Group of each lane's element; padding repeats the last.
std::vector<int> RowLoader::groups_of(int vec) const {
    const int lanes = e_.lanes();
    std::vector<int> groups;
    for (int lane = 0; lane < lanes; ++lane) {
        const int element = lane_element(format_, lanes, vec * lanes + lane);
        groups.push_back(element < dim_ ? element / format_.quant_group : groups.empty() ? 0 : groups.back());
    }
    return groups;
}

void RowLoader::scale(const Vec& v, const std::vector<int>& groups, const RegExp& scales) {
    const auto [low, high] = std::minmax_element(groups.begin(), groups.end());
    if (*low == *high) return e_.multiply_by_scalar(v, scales + *low * 4);
    Temp factors(e_, "scale.factors");
    load_factors(factors, groups, scales);
    e_.vmulps(v, v, factors);
}

// factors = the scale of each lane's group.
void RowLoader::load_factors(const Vec& factors, const std::vector<int>& groups, const RegExp& scales) {
    const auto [low, high] = std::minmax_element(groups.begin(), groups.end());
    const int base = *low, span = *high - base;
    if (span == 0) return e_.vbroadcastss(factors, e_.ptr[scales + base * 4]);
    if (span < e_.lanes()) {
        std::vector<uint32_t> order;
        for (int g : groups) order.push_back(uint32_t(g - base));
        return e_.load_permuted(factors, scales + base * 4, order);
    }
    // More groups than lanes (int4 with groups of 1): one by one, through the red zone.
    for (size_t lane = 0; lane < groups.size(); ++lane) {
        e_.mov(e_.eax, e_.ptr[scales + groups[lane] * 4]);
        e_.mov(e_.dword[e_.rsp - 64 + int(lane) * 4], e_.eax);
    }
    e_.vmovups(factors, e_.ptr[e_.rsp - 64]);
}

}  // namespace quire::jit
