// Quantises whole rows of f32 fast: what append does to each group, for eight groups at a time.
#pragma once
#include "jit/append.h"
#include "jit/emitter.h"

namespace quire::jit {

constexpr float kSmallestScale = 1e-5f;

// f32 input, groups of whole vectors of eight, rows of whole sixteens.
bool can_quantise(const AppendKey& key);

struct QuantisedRow {
    Gpr input, row, scales;
};

// Jumps to `special` where the row holds NaN or Inf; the row and its scales may be partly written then.
void emit_quantise(Emitter& e, const AppendKey& key, const QuantisedRow& at, Xbyak::Label& special);

}  // namespace quire::jit
