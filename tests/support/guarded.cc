#include "tests/support/guarded.h"

#include <cpuid.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

namespace quire::test {
namespace {

// qemu-user 7.2 reads the lanes that vmaskmovps masks out, as no processor does. Under it data keeps the
// distance of a vector from the guards; writes are still seen.
size_t distance_from_guard() {
    static const bool emulated = [] {
        uint32_t a = 0, signature[3] = {};
        __cpuid(0x40000000, a, signature[0], signature[1], signature[2]);
        return std::memcmp(signature, "TCGTCGTCGTCG", sizeof signature) == 0;
    }();
    return emulated ? 32 : 0;
}

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, Flush flush) : size_(bytes) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE)), distance = distance_from_guard();
    open_ = (std::max<size_t>(bytes + distance, 1) + page - 1) / page * page;
    mapped_ = open_ + 2 * page;
    void* mapping = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<uint8_t*>(mapping);
    pages_ = mapping_ + page;
    protect(PROT_READ | PROT_WRITE);
    std::memset(pages_, kFillByte, open_);
    data_ = flush == Flush::end ? pages_ + open_ - distance - size_ : pages_ + distance;
}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(pages_, other.pages_);
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    std::swap(open_, other.open_);
    std::swap(size_, other.size_);
    return *this;
}

GuardedBuffer::~GuardedBuffer() {
    if (mapping_ == nullptr) return;
    allow_access();
    EXPECT_TRUE(slack_intact()) << "bytes beside a buffer of " << size_ << " bytes were written";
    munmap(mapping_, mapped_);
}

void GuardedBuffer::fill(const void* pattern, size_t pattern_bytes) {
    for (size_t i = 0; i < size_; i += pattern_bytes)
        std::memcpy(data_ + i, pattern, std::min(pattern_bytes, size_ - i));
}

bool GuardedBuffer::slack_intact() const {
    const auto untouched = [](uint8_t byte) { return byte == kFillByte; };
    return std::all_of(pages_, data_, untouched) && std::all_of(data_ + size_, pages_ + open_, untouched);
}

void GuardedBuffer::protect(int protection) {
    if (mprotect(pages_, open_, protection) != 0) throw std::bad_alloc();
}

void GuardedBuffer::forbid_access() { protect(PROT_NONE); }
void GuardedBuffer::forbid_writes() { protect(PROT_READ); }
void GuardedBuffer::allow_access() { protect(PROT_READ | PROT_WRITE); }

}  // namespace quire::test
