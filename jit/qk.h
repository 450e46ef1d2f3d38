// Decode: scores of R query rows against a block of key rows.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_qk(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
