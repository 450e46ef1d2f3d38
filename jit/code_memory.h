// Executable memory that is never writable and executable at once: code is generated into a private buffer
// and published by a ladder of ways (DESIGN section 7).
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/status.h"

namespace quire::jit {

enum class Publication { mapping, memfd };

// Published code; unmapped when destroyed.
class CodeMemory {
public:
    CodeMemory() = default;
    CodeMemory(CodeMemory&& other) noexcept { *this = static_cast<CodeMemory&&>(other); }
    CodeMemory& operator=(CodeMemory&& other) noexcept;
    ~CodeMemory();

    // Tries each way in order. QUIRE_UNSUPPORTED, with both reasons, where the system refuses them all.
    static Status publish(const uint8_t* code, size_t size, CodeMemory* memory);
    // One way alone, for tests.
    static Status publish_by(Publication way, const uint8_t* code, size_t size, CodeMemory* memory);

    const void* entry() const { return address_; }
    size_t size() const { return size_; }  // bytes mapped
    Publication way() const { return way_; }

private:
    void* address_ = nullptr;
    size_t size_ = 0;
    Publication way_ = Publication::mapping;
};

// Test hook: makes the first `ways` ways of the ladder fail as a hardened kernel would. 0 in normal use.
void refuse_publication(int ways);

}  // namespace quire::jit
