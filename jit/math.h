// Functions of f32 lanes, built on the emitter. NaN in gives NaN out.
#pragma once
#include "jit/emitter.h"

namespace quire::jit {

// x = 2^x for x <= 127; 0 for x below -126 (AVX2) or -149 (AVX-512), so also for -Inf. Relative error 1e-7.
void emit_exp2(Emitter& e, const Vec& x);
// How near: 1e-7; 2e-7, what rounding alone leaves of a score of magnitude 2; 4e-6 and 1e-4 for what is
// rounded to words of 15 bits, or to bfloat16, next. 2^0 is 1.
enum class Exp2 { number, probability, word, bfloat };

// Of several vectors, step by step: with one after the other a processor's schedulers are full of
// instructions that wait, before the next vector's come. Takes two registers for each.
void emit_exp2(Emitter& e, const std::vector<Vec>& x, Exp2 near = Exp2::number);
// Keeps its constants in registers where at least `spare` + 1 are free, until Emitter::drop_held.
void hold_exp2(Emitter& e, Exp2 near, int spare);

// x = 2^x as Exp2::probability, on AVX-512: by a table of its 32nds, with three products for five, of more
// operations in all. For where products have other work.
void emit_probability(Emitter& e, const Vec& x);

// x = tanh(x). Relative error 3e-7.
void emit_tanh(Emitter& e, const Vec& x);

}  // namespace quire::jit
