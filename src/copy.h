// Rows that an operator copies before attention: converted, with a bias added, dequantised. What turns an
// operator's own arrangement of tensors (past and new keys apart, biases, presents) into that of the common path.
#pragma once
#include "src/problem.h"

namespace quire {

// to[b, row, head] = from[b, row, head / repeat] (+ bias[head / repeat]) for all rows and heads of each sequence.
struct RowCopy {
    int64_t B = 0, rows = 0;
    int heads = 0, dim = 0, repeat = 1;
    RowView from, to;
    quire_type from_type = QUIRE_F32, to_type = QUIRE_F32;
    const char* bias = nullptr;  // [heads][dim] of bias_type, contiguous; null: none
    quire_type bias_type = QUIRE_F32;

    int64_t items() const { return B * rows; }
    void run_item(int64_t index) const;
};

}  // namespace quire
