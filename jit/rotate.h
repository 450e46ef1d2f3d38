// Rotates one row in registers: what src/rotation.h defines, with its bits.
#pragma once
#include "jit/emitter.h"
#include "src/rotation.h"

namespace quire::jit {

// `input`: dim numbers of `type`; cos, sin: [R / 2] f32, not used without a rotary embedding; `out`: dim f32.
struct RotatedRow {
    RegExp input, cos, sin, out;
};

void emit_rotate(Emitter& e, const Rotation& rotation, quire_type type, int dim, const RotatedRow& at);

}  // namespace quire::jit
