// Rows of keys, or of values, that wait for their kernels. What goes to blocks of tokens is quantised as a
// plain row first.
#pragma once
#include "src/attend.h"

namespace quire {

class AppendRows {
public:
    static constexpr int64_t kMost = 64;  // rows that wait

    struct To {
        const jit::Kernel<jit::AppendArgs>& store;
        const jit::Kernel<jit::TokenPlaceArgs>& place;  // empty where the cache has rows
        const quire_format& format;
        Side side;
        int dim;
    };
    static size_t floats(const quire_format& format, int dim);  // of scratch that one takes
    AppendRows(const To& to, float* kernel_scratch, Scratch& scratch);

    struct Token {
        RowView from, to, scales;  // row 0 is the token's
        Rotary::Row angles;
        int number;  // in its block
    };
    // `heads` rows of each of up to kBlockTokens tokens, which follow each other (in one block, where there
    // are blocks).
    void add(const Token* tokens, int64_t count, int64_t heads);
    void flush();

private:
    void add(const Token& token, int64_t head);
    int64_t run_from(int64_t first) const;
    void place(int64_t first, int64_t count);
    void place_one(int64_t i);

    const To to_;
    float* const kernel_scratch_;
    const TokenBlockInfo* const info_;  // null: the cache has rows
    const TokenBlockShape shape_;
    const size_t row_bytes_;      // of a plain row in plain_
    jit::AppendRow* const rows_;  // [kMost]
    char* const plain_;           // [kMost] rows with their scales
    TokenPlace* const places_;    // [kMost] where they go
    int64_t count_ = 0;
};

}  // namespace quire
