// A row of numbers times a factor, as numbers of another type: queries, and outputs from their sums.
// void(const ScaleRowArgs*).
#pragma once
#include <vector>

#include "jit/kernel_key.h"

namespace quire::jit {

struct ScaleRowArgs {  // to = from * factor
    const void* from;  // [dim]
    void* to;          // [dim], written
    float* poison;     // written: 0, or NaN where NaN or Inf is in the products, before they are rounded
    float factor;
};

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
