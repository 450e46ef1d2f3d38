// Listings of generated code: instructions with the names that the emitter gave their registers.
#pragma once
#include <string>

#include "jit/code_cache.h"

namespace quire::jit {

// Instructions are decoded by Zydis, which is loaded here where it is installed (and was when this library
// was compiled). Without it the bytes are shown; the first lines say so.
std::string listing(const std::string& name, const uint8_t* bytes, size_t size, const Notes& notes);

// DIRECTORY/NAME.lst and NAME.bin; a file of that name is replaced as a whole.
Status write_listing(const std::string& directory, const Code& code, const Notes& notes);

}  // namespace quire::jit
