#include "python/src/error.h"

namespace quire_python {

void fail(const std::string& name, const std::string& rest) { throw Error(name + " " + rest); }

void check(quire_status status) {
    if (status != QUIRE_OK) throw Error(quire_last_error());
}

const char* check(const char* text) {
    if (!text) throw Error(quire_last_error());
    return text;
}

}  // namespace quire_python
