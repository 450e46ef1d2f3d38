// Rows of a tensor through a dense layer: how an operator that is a layer gets from its inputs to queries,
// keys and values, and from attention's output to its own.
#pragma once
#include "src/attend.h"
#include "src/dense.h"
#include "src/dropout.h"

namespace quire {

// Rows [rows / per_batch][per_batch] of elements that follow each other.
struct ProjectedRows {
    char* base = nullptr;
    quire_type type = QUIRE_F32;
    int64_t per_batch = 1, batch_stride = 0, row_stride = 0;
    char* at(int64_t row) const {
        return base + row / per_batch * batch_stride + row % per_batch * row_stride;
    }
};

// to[row] = dropout(from[row] W^T + bias), with from's elements and the result rounded to `compute_type`.
struct Projection {
    const DenseWeights* weights = nullptr;
    int64_t rows = 0;
    ProjectedRows from, to;
    quire_type compute_type = QUIRE_F32;
    Dropout dropout;  // plane kDropoutPlane, column as in `to`

    static constexpr uint32_t kDropoutPlane = UINT32_MAX;

    // An item is a block of rows and a block of columns; the rows of a column block follow each other, so
    // that its weights stay in a cache.
    int64_t row_blocks() const { return (rows + DenseWeights::kRows - 1) / DenseWeights::kRows; }
    int64_t items() const { return row_blocks() * weights->column_blocks(); }
    size_t scratch_floats() const;
    void run_item(int64_t index, Scratch& scratch) const;
};

}  // namespace quire
