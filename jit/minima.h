// What the minima of ggml's blocks add to outputs: integer products are of codes around their zero.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_minima(const RowKey& values, std::vector<uint8_t>* code);  // void(const MinimaArgs*)

}  // namespace quire::jit
