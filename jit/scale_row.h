// A row of numbers times a factor, as numbers of another type: queries, and outputs from their sums.
// void(const ScaleRowArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

struct ScaleRowKey {
    const Target* target;
    quire_type from, to;
    int dim;
    std::string name() const {
        return "scale_row_d" + std::to_string(dim) + "_" + type_name(from) + "_" + type_name(to) + "_" +
               target->name;
    }
};

Status generate_scale_row(const ScaleRowKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
