// Arguments of rotary embeddings.
#pragma once
#include "python/src/tensor.h"

namespace quire_python {

// None, "halves" or "interleaved".
quire_rotary to_rotary(nb::handle object);

// R, as the table's last dimension tells it; 0 without a rotary embedding.
int32_t rotary_dim_of(quire_rotary rotary, const Tensor& cos);

}  // namespace quire_python
