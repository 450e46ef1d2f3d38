// Quantises whole rows fast: what append does to each group, for eight groups at a time.
#pragma once
#include <functional>

#include "jit/append.h"
#include "jit/emitter.h"

namespace quire::jit {

constexpr float kSmallestScale = 1e-5f;

// Rows of whole sixteens, groups of whole vectors of eight.
bool can_quantise(const AppendKey& key);

struct QuantisedRow {
    RegExp input;
    Gpr row, scales;
    Gpr slot;  // [slot_groups] scales, then [slot_groups] reciprocals
};

// The stages of a row, by way of its slot. Each waits for the one before: other work belongs between them.
// The largest magnitudes; some lane of `spoilt` is not 0 where the row holds NaN or Inf.
void emit_largest(Emitter& e, const AppendKey& key, const QuantisedRow& at, const Vec& spoilt);
// Scales, to the slot and to the cache.
void emit_scales(Emitter& e, const AppendKey& key, const QuantisedRow& at);
void emit_reciprocals(Emitter& e, const AppendKey& key, const QuantisedRow& at);
// Codes. Jumps to `special` where the row is spoilt; it may be partly written then. `halfway` and
// `before_end` emit other work, which may use whatever registers are free.
void emit_codes(Emitter& e, const AppendKey& key, const QuantisedRow& at, const Vec& spoilt, Label& special,
                const std::function<void()>& halfway, const std::function<void()>& before_end);

}  // namespace quire::jit
