// Blocks of tokens back to plain rows, for what reads rows: the tiles of prefill, and read.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Rows of keys are of the type of row_format(); of values always of INT8.
inline quire_format taken_format(const quire_format& format, Side side) {
    quire_format rows = row_format(format);
    if (token_block_info(format.type) && side == Side::value) rows.type = QUIRE_INT8;
    return rows;
}

Status generate_token_rows(const RowKey& key, Side side,
                           std::vector<uint8_t>* code);  // void(const TokenRowsArgs*)

}  // namespace quire::jit
