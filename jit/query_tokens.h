// One query row as jit/token_qk_bytes.h takes it: rounded to one byte an element, or two or three.
#pragma once
#include <vector>

#include "jit/token_qk_bytes.h"

namespace quire::jit {

// What the code is of: AVX2 where vectors of sixteen lanes would end within a run, or behind the row.
const Target& query_tokens_target(const RowKey& keys);

Status generate_query_tokens(const RowKey& keys, std::vector<uint8_t>* code);  // void(const QueryArgs*)

}  // namespace quire::jit
