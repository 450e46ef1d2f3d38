// How errors reach Python: everything a caller got wrong is a quire.Error, a ValueError.
#pragma once
#include <stdexcept>
#include <string>

#include "quire/quire.h"

namespace quire_python {

// Becomes quire.Error. The message names the Python argument, its value and the rule it broke.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// `name` is an argument, `rest` continues the sentence: fail("cache", "is read-only: ...").
[[noreturn]] void fail(const std::string& name, const std::string& rest);

// Throws the library's message of this thread's last call unless `status` is QUIRE_OK.
void check(quire_status status);

// `text`, or where it is null (the library's sign of a failed call) its message as an Error.
const char* check(const char* text);

}  // namespace quire_python
