// Decode over keys in blocks of tokens (src/token_blocks.h): scores of R query rows.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Elements of the query in the order of words that the kernel takes, -1 for padding: [query_words()].
std::vector<int> token_word_order(const RowKey& key);

Status generate_token_qk(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
