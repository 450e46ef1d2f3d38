// Rotate, quantise and store new rows of keys or values. void(const AppendArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"
#include "src/rotation.h"

namespace quire::jit {

struct AppendKey {
    const Target* target;
    quire_type input_type;
    quire_format format;
    int dim;
    Rotation rotation = {};

    std::string name() const {
        return "append_d" + std::to_string(dim) + "_" + type_name(input_type) + "_" + format_name(format) +
               rotation.name() + "_" + target->name;
    }
    // Of the numbers that are stored: a rotated row is f32.
    quire_type row_type() const { return rotation ? QUIRE_F32 : input_type; }
    // Scratch: two slots, of this row and of the next, each the scales and reciprocals of its groups (rounded
    // up to eight) and the rotated row; then the codes of a row.
    int slot_groups() const { return is_quantised(format) ? (dim / format.quant_group + 7) / 8 * 8 : 0; }
    int slot_floats() const { return 2 * slot_groups() + (rotation ? (dim + 15) / 16 * 16 : 0); }
    int scratch_floats() const { return 2 * slot_floats() + (dim + 3) / 4; }
};

Status generate_append(const AppendKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
