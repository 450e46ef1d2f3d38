// The definition of attention as plain loops over the dequantised cache, in double (what all results are held
// against) and in float (what accuracy is measured with). Independent of src/portable.cc.
#pragma once
#include <vector>

#include "tests/support/tensors.h"

namespace quire::test {

template <typename Real>
struct Attended {
    std::vector<Real> output, lse;  // [n, H, Dv], [n, H]
};

// Real: float or double.
template <typename Real>
Attended<Real> plain_attention(const Tensors& tensors);

}  // namespace quire::test
