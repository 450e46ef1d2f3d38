#include "src/status.h"

#include <cstdarg>
#include <cstdio>

namespace quire {
namespace {

Status make(quire_status code, const char* format, va_list args) {
    char text[512];
    std::vsnprintf(text, sizeof text, format, args);
    return Status(code, text);
}

// A plain array: no destructor order to think of at thread exit, and no allocation while out of memory.
thread_local char t_last_error[512] = "";

}  // namespace

Status invalid(const char* format, ...) {
    va_list args;
    va_start(args, format);
    Status status = make(QUIRE_INVALID_ARGUMENT, format, args);
    va_end(args);
    return status;
}

Status unsupported(const char* format, ...) {
    va_list args;
    va_start(args, format);
    Status status = make(QUIRE_UNSUPPORTED, format, args);
    va_end(args);
    return status;
}

quire_status report(const Status& status) noexcept {
    std::snprintf(t_last_error, sizeof t_last_error, "%s", status.message().c_str());
    return status.code();
}

const char* last_error() noexcept { return t_last_error; }

}  // namespace quire
