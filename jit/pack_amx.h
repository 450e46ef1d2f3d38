// Values packed as pairs of bfloat16 numbers -> tiles of AMX.
#pragma once
#include "jit/args.h"
#include "jit/emitter.h"

namespace quire::jit {

constexpr int kAmxValueStride = kAmxRows / kValuePanel * kPairPanelStride;  // pairs, from a tile to the next

// tiles [kAmxValueStride] of pairs from `tile` on, each with so many blocks of kAmxPairs pairs: [pair]
// [kAmxRows] -> [kAmxRows][pair], in place. Reads and writes whole blocks. `blocks` is clobbered.
void turn_value_blocks(Emitter& e, const Gpr& tile, int tiles, const Gpr& blocks);

}  // namespace quire::jit
