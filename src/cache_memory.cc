#include "src/cache_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace quire {
namespace {

// Of mmap: no sum of it overflows.
constexpr size_t kMost = size_t(1) << 47;

size_t whole_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

Status check_bytes(size_t bytes) {
    if (bytes == 0) return invalid("bytes is 0: must be at least 1");
    return {};
}

}  // namespace

Status allocate_cache_memory(size_t bytes, void** memory) {
    if (memory == nullptr) return invalid("memory is NULL: must point at a void*");
    QUIRE_TRY(check_bytes(bytes));
    const auto refuse = [&](const char* why) {
        return Status(QUIRE_OUT_OF_MEMORY, "bytes is " + std::to_string(bytes) + ": " + why);
    };
    if (bytes > kMost) return refuse("no address space has so much");
    // One page more than wanted, so that some multiple of 2 MiB has room after it; what is beside that goes
    // back.
    const size_t wanted = whole_pages(bytes), mapped = wanted + kHugePage;
    void* const area = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return refuse(std::strerror(errno));
    char* const begin = static_cast<char*>(area);
    char* const aligned = begin + (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    char* const end = aligned + wanted;
    if (aligned > begin) munmap(begin, size_t(aligned - begin));
    if (begin + mapped > end) munmap(end, size_t(begin + mapped - end));
#ifdef MADV_HUGEPAGE
    static_cast<void>(madvise(aligned, wanted, MADV_HUGEPAGE));  // small pages do as well
#endif
    *memory = aligned;
    return {};
}

Status free_cache_memory(void* memory, size_t bytes) {
    if (memory == nullptr) return {};
    QUIRE_TRY(check_bytes(bytes));
    if (reinterpret_cast<uintptr_t>(memory) % kHugePage != 0)
        return invalid("memory is %p: must be what quire_cache_alloc gave, a multiple of 2 MiB", memory);
    if (bytes > kMost || munmap(memory, whole_pages(bytes)) != 0)
        return invalid("bytes is %zu: must be those of quire_cache_alloc", bytes);
    return {};
}

}  // namespace quire
