// A status with its message, and the last error of a thread.
#pragma once
#include <string>
#include <utility>

#include "quire/quire.h"

namespace quire {

class [[nodiscard]] Status {
public:
    Status() = default;
    Status(quire_status code, std::string message) : code_(code), message_(std::move(message)) {}
    bool ok() const { return code_ == QUIRE_OK; }
    quire_status code() const { return code_; }
    const std::string& message() const { return message_; }

private:
    quire_status code_ = QUIRE_OK;
    std::string message_;
};

// printf-style makers. The message names the argument, its value and the rule.
Status invalid(const char* format, ...) __attribute__((format(printf, 1, 2)));
Status unsupported(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Remembers the message for quire_last_error() of this thread and returns the code.
quire_status report(const Status& status) noexcept;
const char* last_error() noexcept;

#define QUIRE_TRY(expression)                                \
    do {                                                     \
        ::quire::Status quire_try_status = (expression);     \
        if (!quire_try_status.ok()) return quire_try_status; \
    } while (0)

}  // namespace quire
