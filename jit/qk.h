// Decode: scores of R query rows against a block of key rows.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

// Elements of the query in the order of words that QK of so many rows takes, -1 for padding: [query_words()].
std::vector<int> query_word_order(const RowKey& key);

// What QK of floats takes the query's numbers times: a power of two.
float query_unit(const RowKey& key);

Status generate_qk(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
