// The format of dense or cached rows, as their arrays tell it.
#pragma once
#include "python/src/tensor.h"
#include "quire/quire.h"

namespace quire_python {

// `rows` [slots, Hk, D] and, where they are quantised, `scale` [slots, Hk, D / G] from which G follows. The
// names are the Python arguments, for messages.
// `group`: of blocks of tokens, as take_blocks gives it.
quire_format format_of(const Tensor& rows, const char* rows_name, const Tensor& scale, const char* scale_name,
                       int32_t group);

// Where the argument `format` is the name of a format of blocks ("q8_0", "int8_b16_g32") and not None, the
// bytes of `rows` are such blocks from here on. The group of blocks of tokens, else 0.
int32_t take_blocks(nb::handle format, const char* format_name, Tensor* rows);

// Values of a head: the last dimension, or what gives blocks of tokens of its length.
int64_t head_size(const Tensor& rows, const char* rows_name, int32_t group);

// "int8_b16_g32" -> {INT8_B16, 32, F16}; QUIRE_NONE where it is no such name.
quire_format token_format(nb::handle name);

}  // namespace quire_python
