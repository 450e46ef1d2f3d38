// The format of dense or cached rows, as their arrays tell it.
#pragma once
#include "python/src/tensor.h"
#include "quire/quire.h"

namespace quire_python {

// `rows` [slots, Hk, D] and, where they are quantised, `scale` [slots, Hk, D / G] from which G follows. The
// names are the Python arguments, for messages.
quire_format format_of(const Tensor& rows, const char* rows_name, const Tensor& scale,
                       const char* scale_name);

// Where the argument `format` is the name of a format of blocks ("q8_0") and not None, the bytes of `rows`
// are such blocks from here on.
void take_blocks(nb::handle format, const char* format_name, Tensor* rows);

}  // namespace quire_python
