// What may be done to a row of queries or keys before it is stored: rotary position embedding, then a
// Hadamard rotation. The definition, in float32; generated code has its bits.
#pragma once
#include <string>

#include "quire/quire.h"

namespace quire {

struct Rotation {
    quire_rotary rotary = QUIRE_ROTARY_NONE;
    int rotary_dim = 0;  // R: the first so many elements; even
    int block = 0;       // elements that a Hadamard rotation mixes, a power of two; 0: none

    explicit operator bool() const { return rotary != QUIRE_ROTARY_NONE || block != 0; }
    // "_halves64_hadamard128", "" where there is none.
    std::string name() const;
};

// The largest power of two that divides dim.
int hadamard_block(int dim);

// cos, sin: [R / 2], of the row's position; at any address; not read without a rotary embedding.
void rotate_row(const Rotation& rotation, int dim, const float* cos, const float* sin, float* values);

}  // namespace quire
