// Nibbles as signed bytes that are 16 times as large: tiles of AMX multiply them as they are.
#pragma once
#include "jit/emitter.h"

namespace quire::jit {

// low = the low nibbles of v, v = the upper ones, each in the upper half of its byte; upper: 0xf0 in all.
inline void part_nibbles(Emitter& e, const Vec& low, const Vec& v, const Vec& upper) {
    e.vpsllw(low, v, 4);
    e.vpandd(low, low, upper);
    e.vpandd(v, v, upper);
}

}  // namespace quire::jit
