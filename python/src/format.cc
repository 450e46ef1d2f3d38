#include "python/src/format.h"

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

const char* name_of(quire_type type) {
    for (const auto& [name, block] : kBlocks)
        if (block == type) return name;
    return type_name(type);
}

}  // namespace

quire_format format_of(const Tensor& rows, const char* rows_name, const Tensor& scale,
                       const char* scale_name) {
    quire_format format{};
    format.type = rows.type();
    const bool quantised = format.type == QUIRE_INT8 || format.type == QUIRE_INT4;
    if (quantised != (scale.get() != nullptr))
        fail(scale_name, std::string(quantised ? "is missing: " : "is given, but ") + rows_name + " is " +
                             name_of(format.type) +
                             (quantised                  ? ""
                              : format.type < QUIRE_Q8_0 ? ", which is not quantised"
                                                         : ", which holds its scales"));
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

void take_blocks(nb::handle format, const char* format_name, Tensor* rows) {
    if (format.is_none()) return;
    std::string names;
    for (const auto& [name, type] : kBlocks) {
        if (PyUnicode_Check(format.ptr()) && PyUnicode_CompareWithASCIIString(format.ptr(), name) == 0)
            return rows->take_as_blocks(type, name);
        names += std::string(names.empty() ? "'" : ", '") + name + "'";
    }
    fail(format_name, std::string("is ") + nb::repr(format).c_str() + ": must be None or one of " + names);
}

}  // namespace quire_python
