// Rows that an operator copies before attention: with a bias added, or set to zero. What turns an operator's
// own arrangement of tensors (past and new keys apart, biases, presents) into that of the common path.
#pragma once
#include "src/tensors.h"

namespace quire {

// to[b, begin(b) + row, head] = from[b, from_begin(b) + row, head] (+ bias[head]) for all heads and the first
// counts(b) rows of each sequence.
struct RowCopy {
    int64_t B = 0, rows = 0;
    int heads = 0, dim = 0;
    quire_type type = QUIRE_F32;         // of `to` and `bias`
    quire_type from_type = QUIRE_NONE;   // none: `type`
    RowView from, to;                    // `from` without base: zeros
    int64_t from_step = 0, to_step = 0;  // bytes between the elements of a row; 0: one after the other
    const char* bias = nullptr;          // [heads][dim], contiguous; null: none
    IndexView begin;                     // none: 0
    IndexView from_begin;                // the first row read; none: 0
    IndexView counts;                    // none: all rows

    // An item is a block of rows of a sequence.
    static constexpr int64_t kBlock = 64;
    int64_t blocks() const { return (rows + kBlock - 1) / kBlock; }
    int64_t items() const { return B * blocks(); }
    void run_item(int64_t index) const;

private:
    void run_rows(int64_t b, int64_t row, int64_t count, int head) const;
    void run_elements(int64_t b, int64_t row, int64_t count, int head) const;
};

}  // namespace quire
