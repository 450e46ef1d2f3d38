// Blocks of tokens back to plain rows, for what reads rows: the tiles of prefill, and read.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Rows are of the type of row_format().
Status generate_token_rows(const RowKey& key, Side side,
                           std::vector<uint8_t>* code);  // void(const TokenRowsArgs*)

}  // namespace quire::jit
