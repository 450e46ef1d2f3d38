// Decode over values in blocks of tokens at `medium`, with VNNI and vectors of 512 bits: output rows +=
// weights that are bytes * bytes of the values (jit/weights_runs.h).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

Status generate_token_pv_runs(const RowKey& key, std::vector<uint8_t>* code);  // void(const PvArgs*)

}  // namespace quire::jit
