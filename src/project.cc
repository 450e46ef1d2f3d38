#include "src/project.h"

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

constexpr size_t kRows = DenseWeights::kRows, kColumns = DenseWeights::kColumns;

void load_row(const Projection& p, const char* from, float* to) {
    const int count = p.weights->inputs();
    if (p.from.type == QUIRE_F32) std::memcpy(to, from, size_t(count) * 4);
    if (p.from.type != QUIRE_F32) load_numbers(p.from.type, from, count, to);
    if (p.compute_type != p.from.type && p.compute_type != QUIRE_F32)
        for (int i = 0; i < count; ++i) to[i] = round_to(p.compute_type, to[i]);
}

void store_row(const Projection& p, int64_t row, int64_t column, int64_t count, float* from) {
    if (p.dropout) p.dropout.apply(Projection::kDropoutPlane, uint32_t(row), column, count, from, 1);
    char* to = p.to.at(row);
    for (int64_t i = 0; i < count; ++i)
        store_number(p.to.type, to, column + i, round_to(p.compute_type, from[i]));
}

}  // namespace

size_t Projection::scratch_floats() const {
    return kRows * (size_t(weights->inputs()) + kColumns) + weights->scratch_floats() + 64;
}

void Projection::run_item(int64_t index, Scratch& scratch) const {
    const int block = int(index / row_blocks());
    const int64_t first = index % row_blocks() * int64_t(kRows);
    const int count = int(std::min(rows - first, int64_t(kRows))), columns = weights->columns(block);
    scratch.reset();
    float* x = scratch.floats(kRows * size_t(weights->inputs()));
    float* y = scratch.floats(kRows * kColumns);
    float* memory = scratch.floats(weights->scratch_floats());
    for (int i = 0; i < count; ++i)
        load_row(*this, from.at(first + i), x + size_t(i) * size_t(weights->inputs()));
    weights->multiply(block, count, x, y, memory);
    for (int i = 0; i < count; ++i)
        store_row(*this, first + i, int64_t(block) * int64_t(kColumns), columns, y + i * columns);
}

}  // namespace quire
