// What most tests of attention do: run a case on some targets and hold the results against the definition.
#pragma once
#include <vector>

#include "tests/support/accuracy.h"

namespace quire::test {

// Adds a failure for each target whose result is not accurate; `ratio` may be null.
void check(const Case& c, const std::vector<const Target*>& on, ErrorRatio* ratio = nullptr);
// Of tensors that the test has changed.
void check(Tensors& tensors, const std::vector<const Target*>& on, ErrorRatio* ratio = nullptr);
// The RMS error of all cases, as a multiple of that of a plain float32 attention.
double check_all(const std::vector<Case>& cases, const std::vector<const Target*>& on);

}  // namespace quire::test
