// Append: plain rows into blocks of tokens, several tokens at a time.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Rows of row_format(), each with its scales behind it, which the kernel leaves alone.
Status generate_token_place(const RowKey& key, Side side,
                            std::vector<uint8_t>* code);  // void(const TokenPlaceArgs*)

}  // namespace quire::jit
