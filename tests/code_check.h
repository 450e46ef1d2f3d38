// Decodes generated code and says what must not be in it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/target.h"

namespace quire::test {

// False where the decoder (Zydis) was not there at build time: check_code then finds nothing.
bool can_decode();

// The first thing that is wrong with a kernel of `target`, with its offset; "" where nothing is. `bytes` is
// code up to its only `ret`, padding to 64 bytes, and the pool of constants.
std::string check_code(const Target& target, const std::vector<uint8_t>& bytes);

}  // namespace quire::test
