// Rows that an operator copies before attention: with a bias added, or set to zero. What turns an operator's
// own arrangement of tensors (past and new keys apart, biases, presents) into that of the common path.
#pragma once
#include "src/tensors.h"

namespace quire {

// to[b, begin(b) + row, head] = from[b, from_begin(b) + row, head] (+ bias[head]) for all heads and the first
// counts(b) rows of each sequence.
struct RowCopy {
    static constexpr int64_t kNextToEachOther = INT64_MIN;

    int64_t B = 0, rows = 0;
    int heads = 0, dim = 0;
    // Of `to` and `bias`, and of `from` (none: the same).
    quire_type type = QUIRE_F32, from_type = QUIRE_NONE;
    RowView from, to;            // `from` without base: zeros
    const char* bias = nullptr;  // [heads][dim], contiguous; null: none
    IndexView begin;             // none: 0
    IndexView from_begin;        // the first row read; none: 0
    IndexView counts;            // none: all rows
    // Bytes between the elements of a row. A bias goes only with these, and with one type.
    int64_t from_step = kNextToEachOther, to_step = kNextToEachOther;

    // An item is a block of rows of a sequence.
    static constexpr int64_t kBlock = 64;
    int64_t blocks() const { return (rows + kBlock - 1) / kBlock; }
    int64_t items() const { return B * blocks(); }
    void run_item(int64_t index) const;

private:
    void run_rows(int64_t b, int64_t row, int64_t count, int head) const;
    void run_elements(int64_t b, int64_t row, int64_t count, int head) const;
    quire_type source_type() const { return from_type == QUIRE_NONE ? type : from_type; }
    int64_t from_size() const;
    int64_t to_size() const;
};

}  // namespace quire
