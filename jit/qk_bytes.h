// Decode: scores of R query rows of bytes against a block of key rows, by 8-bit dot products.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_qk_bytes(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
