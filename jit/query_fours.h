// One query row as jit/qk_fours.h takes it: rounded to one byte an element, or two or three, each dword of
// them in place for four keys.
#pragma once
#include <vector>

#include "jit/qk_fours.h"

namespace quire::jit {

// Others than these are rounded without generated code (src/attend_query_fours.cc).
inline bool has_query_fours(const RowKey& keys) {
    return takes_fours(keys) && keys.target->vector_bits == 512 && keys.target->vnni;
}

// void(const QueryArgs*)
Status generate_query_fours(const RowKey& keys, std::vector<uint8_t>* code);

}  // namespace quire::jit
