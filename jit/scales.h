// f32 scales of a block of rows.
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_scales(const RowKey& key, std::vector<uint8_t>* code);  // void(const ScalesArgs*)

}  // namespace quire::jit
