#include "python/src/format.h"

#include <cstring>
#include <utility>

#include "python/src/error.h"
#include "python/src/scalar.h"

namespace quire_python {

namespace {

// Formats that an array's type does not tell.
constexpr std::pair<const char*, quire_type> kBlocks[] = {
    {"q8_0", QUIRE_Q8_0}, {"q4_0", QUIRE_Q4_0}, {"q4_1", QUIRE_Q4_1},
    {"q5_0", QUIRE_Q5_0}, {"q5_1", QUIRE_Q5_1}, {"iq4_nl", QUIRE_IQ4_NL},
};

constexpr std::pair<const char*, quire_type> kTokenBlocks[] = {{"int8_b16", QUIRE_INT8_B16},
                                                               {"int4_b16", QUIRE_INT4_B16}};

const char* name_of(quire_type type) {
    for (const auto& [name, block] : kTokenBlocks)
        if (block == type) return name;
    for (const auto& [name, block] : kBlocks)
        if (block == type) return name;
    return type_name(type);
}

}  // namespace

quire_format format_of(const Tensor& rows, const char* rows_name, const Tensor& scale, const char* scale_name,
                       int32_t group) {
    quire_format format{};
    format.type = rows.type();
    const bool quantised = format.type == QUIRE_INT8 || format.type == QUIRE_INT4;
    if (quantised != (scale.get() != nullptr))
        fail(scale_name, std::string(quantised ? "is missing: " : "is given, but ") + rows_name + " is " +
                             name_of(format.type) +
                             (quantised                  ? ""
                              : format.type < QUIRE_Q8_0 ? ", which is not quantised"
                                                         : ", which holds its scales"));
    if (group != 0) return {format.type, group, QUIRE_F16};
    if (!quantised) return format;
    scale.require_rank(3, "[slots, Hk, D / G]");
    const int64_t head_dim = rows.last_dimension();
    const int64_t groups = scale.last_dimension();
    if (groups <= 0 || head_dim % groups != 0)
        fail(scale_name, "has " + std::to_string(groups) + " groups: must divide the " +
                             std::to_string(head_dim) + " values of a head of " + rows_name);
    format.quant_group = to_int32(head_dim / groups, scale_name);
    format.scale_type = scale.type();
    return format;
}

int32_t take_blocks(nb::handle format, const char* format_name, Tensor* rows) {
    if (format.is_none()) return 0;
    const quire_format tokens = token_format(format);
    if (tokens.type) {
        rows->take_as_token_blocks(tokens.type, name_of(tokens.type));
        return tokens.quant_group;
    }
    std::string names;
    for (const auto& [name, type] : kBlocks) {
        if (PyUnicode_Check(format.ptr()) && PyUnicode_CompareWithASCIIString(format.ptr(), name) == 0) {
            rows->take_as_blocks(type, name);
            return 0;
        }
        names += std::string(names.empty() ? "'" : ", '") + name + "'";
    }
    fail(format_name, std::string("is ") + nb::repr(format).c_str() + ": must be None or one of " + names +
                          ", 'int8_b16_gN', 'int4_b16_gN' (N values share a scale)");
}

int64_t head_size(const Tensor& rows, const char* rows_name, int32_t group) {
    const int64_t last = rows.last_dimension();
    if (group == 0) return last;
    for (int64_t dim = group; dim <= 1024; dim += group)
        if (quire_block_bytes({rows.type(), group, QUIRE_F16}, int32_t(dim)) == last) return dim;
    fail(rows_name, "has a last dimension of " + std::to_string(last) + ": must be the bytes of a block of " +
                        name_of(rows.type()) + "_g" + std::to_string(group) + " (see quire.block_bytes)");
}

quire_format token_format(nb::handle name) {
    if (!PyUnicode_Check(name.ptr())) return {};
    const char* const characters = PyUnicode_AsUTF8(name.ptr());
    if (characters == nullptr) {  // half of a surrogate pair
        PyErr_Clear();
        return {};
    }
    const std::string text = characters;
    for (const auto& [prefix, type] : kTokenBlocks) {
        const size_t length = std::strlen(prefix);
        if (text.compare(0, length, prefix) != 0 || text.compare(length, 2, "_g") != 0) continue;
        const std::string digits = text.substr(length + 2);
        if (digits.empty() || digits.size() > 4 ||
            digits.find_first_not_of("0123456789") != std::string::npos)
            return {};
        return {type, std::stoi(digits), QUIRE_F16};
    }
    return {};
}

}  // namespace quire_python
