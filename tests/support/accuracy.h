// The accuracy that `highest` promises (DESIGN section 5), and the only place that states how it is checked.
#pragma once
#include <gtest/gtest.h>

#include "tests/support/reference.h"
#include "tests/support/run.h"

namespace quire::test {

// Output and lse of the definition, and how far a plain float32 attention is from them.
struct Expected {
    Attended<double> exact;
    Attended<float> plain;
};
Expected expect(const Tensors& tensors);

// Passes where maximum and RMS error against `exact` are at most twice those of `plain`, plus a floor of a
// few float32 roundings. NaN must meet NaN, and -inf (of lse) -inf.
testing::AssertionResult accurate(const Case& c, const Expected& expected, const Outcome& got);

// RMS error over many cases of f32 output (relative to each one's largest value) against that of plain
// float32: free of the luck of a single case, and so much sharper.
class ErrorRatio {
public:
    void add(const Case& c, const Expected& expected, const Outcome& got);
    double value() const;

private:
    double got_ = 0, plain_ = 0;
};

}  // namespace quire::test
