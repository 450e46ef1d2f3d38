// Decode: scores of R query rows of 16-bit words against a block of key rows.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_qk_words(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
