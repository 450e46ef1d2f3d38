#include "python/src/format.h"

#include "python/src/error.h"
#include "python/src/scalar.h"

namespace quire_python {

quire_format format_of(const Tensor& rows, const char* rows_name, const Tensor& scale,
                       const char* scale_name) {
    quire_format format{};
    format.type = rows.type();
    const bool quantised = format.type == QUIRE_INT8 || format.type == QUIRE_INT4;
    if (quantised != (scale.get() != nullptr))
        fail(scale_name, std::string(quantised ? "is missing: " : "is given, but ") + rows_name + " is " +
                             type_name(format.type) + (quantised ? "" : ", which is not quantised"));
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

}  // namespace quire_python
