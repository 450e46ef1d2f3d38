#include "tests/support/guarded.h"

#include <cpuid.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
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

size_t page_size() {
    static const auto size = size_t(sysconf(_SC_PAGESIZE));
    return size;
}

// Pages to read and write between two that are neither. Small ones are kept for the next buffers of their
// size: most of the tests' time went into making them anew.
class Mappings {
public:
    // The first page that is open; `open` bytes, a multiple of a page.
    uint8_t* take(size_t open) {
        {
            const std::lock_guard lock(mutex_);
            std::vector<uint8_t*>& free = free_[open];
            if (!free.empty()) {
                uint8_t* const pages = free.back();
                free.pop_back();
                return pages;
            }
        }
        void* const mapping = mmap(nullptr, open + 2 * page_size(), PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) throw std::bad_alloc();
        uint8_t* const pages = static_cast<uint8_t*>(mapping) + page_size();
        if (mprotect(pages, open, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
        return pages;
    }
    void give_back(uint8_t* pages, size_t open) {
        constexpr size_t kKept = size_t(1) << 20, kMostOfSize = 256;
        const std::lock_guard lock(mutex_);
        std::vector<uint8_t*>& free = free_[open];
        if (open <= kKept && free.size() < kMostOfSize)
            free.push_back(pages);
        else
            munmap(pages - page_size(), open + 2 * page_size());
    }
    static Mappings& all() {
        static Mappings* const mappings = new Mappings;  // buffers of other statics outlive it otherwise
        return *mappings;
    }

private:
    std::mutex mutex_;
    std::map<size_t, std::vector<uint8_t*>> free_;
};

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, Flush flush) : size_(bytes) {
    const size_t page = page_size(), distance = distance_from_guard();
    open_ = (std::max<size_t>(bytes + distance, 1) + page - 1) / page * page;
    pages_ = Mappings::all().take(open_);
    std::memset(pages_, kFillByte, open_);
    data_ = flush == Flush::end ? pages_ + open_ - distance - size_ : pages_ + distance;
}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(data_, other.data_);
    std::swap(open_, other.open_);
    std::swap(size_, other.size_);
    std::swap(protected_, other.protected_);
    return *this;
}

GuardedBuffer::~GuardedBuffer() {
    if (pages_ == nullptr) return;
    allow_access();
    EXPECT_TRUE(slack_intact()) << "bytes beside a buffer of " << size_ << " bytes were written";
    Mappings::all().give_back(pages_, open_);
}

void GuardedBuffer::fill(const void* pattern, size_t pattern_bytes) {
    for (size_t i = 0; i < size_; i += pattern_bytes)
        std::memcpy(data_ + i, pattern, std::min(pattern_bytes, size_ - i));
}

bool GuardedBuffer::slack_intact() const {
    // A run of equal bytes is the same moved by one.
    const auto untouched = [](const uint8_t* begin, const uint8_t* end) {
        return begin == end ||
               (*begin == kFillByte && std::memcmp(begin, begin + 1, size_t(end - begin - 1)) == 0);
    };
    return untouched(pages_, data_) && untouched(data_ + size_, pages_ + open_);
}

void GuardedBuffer::protect(int protection) {
    const bool open = protection == (PROT_READ | PROT_WRITE);
    if (open && !protected_) return;
    protected_ = !open;
    if (mprotect(pages_, open_, protection) != 0) throw std::bad_alloc();
}

void GuardedBuffer::forbid_access() { protect(PROT_NONE); }
void GuardedBuffer::forbid_writes() { protect(PROT_READ); }
void GuardedBuffer::allow_access() { protect(PROT_READ | PROT_WRITE); }

}  // namespace quire::test
