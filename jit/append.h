// Quantise and store one new row of keys or values. void(const AppendArgs*).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

struct AppendKey {
    const Target* target;
    quire_type input_type;
    quire_format format;
    int dim;
    std::string name() const {
        return "append_d" + std::to_string(dim) + "_" + type_name(input_type) + "_" + format_name(format) +
               "_" + target->name;
    }
};

Status generate_append(const AppendKey& key, std::vector<uint8_t>* code);

}  // namespace quire::jit
