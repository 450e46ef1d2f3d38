// Decode: f32 scales of a block of rows, and scores of R query rows against them.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_scales(const RowKey& key, std::vector<uint8_t>* code);  // void(const ScalesArgs*)
Status generate_qk(const RowKey& key, std::vector<uint8_t>* code);      // void(const QkArgs*)

}  // namespace quire::jit
