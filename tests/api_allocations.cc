#include "tests/api_allocations.h"

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

thread_local bool t_counting = false;
thread_local int64_t t_count = 0;
thread_local int64_t t_left = kNever;  // allocations until one is refused
thread_local bool t_all_after = false, t_refused = false;

bool refuse() {
    if (t_left == kNever || t_left-- > 0) return false;
    t_left = t_all_after ? 0 : kNever;
    t_refused = true;
    return true;
}

void* allocate(size_t size, size_t alignment) {
    if (t_counting) ++t_count;
    if (refuse()) throw std::bad_alloc();
    void* memory = nullptr;
    if (alignment <= sizeof(void*) * 2)
        memory = std::malloc(size == 0 ? 1 : size);
    else if (posix_memalign(&memory, alignment, size) != 0)
        memory = nullptr;
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(size_t size) { return allocate(size, 1); }
void* operator new[](size_t size) { return allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) { return allocate(size, size_t(alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return allocate(size, size_t(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// The sanitizers have a malloc of their own.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
    if (t_counting) ++t_count;
    return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
    if (t_counting) ++t_count;
    return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
    if (t_counting) ++t_count;
    return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
    if (t_counting) ++t_count;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
    if (t_counting) ++t_count;
    *memory = __libc_memalign(alignment, size);
    return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

namespace quire::test {

CountAllocations::CountAllocations() {
    t_count = 0;
    t_counting = true;
}
CountAllocations::~CountAllocations() { t_counting = false; }
int64_t CountAllocations::count() const { return t_count; }

RefuseAllocations::RefuseAllocations(int64_t first, bool all_after) {
    t_left = first;
    t_all_after = all_after;
    t_refused = false;
}
RefuseAllocations::~RefuseAllocations() { t_left = kNever; }
bool RefuseAllocations::refused() const { return t_refused; }

}  // namespace quire::test
