#include "jit/code_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace quire::jit {
namespace {

std::atomic<int> g_refused_ways{0};

size_t round_to_pages(size_t size) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    return (size + page - 1) / page * page;
}

Status refused(const char* step) { return unsupported("code memory: %s: %s", step, std::strerror(errno)); }

// RW anonymous pages, filled, then turned to RX. SELinux's execmem and similar rules refuse the second step.
Status publish_mapping(const uint8_t* code, size_t size, size_t mapped, void** address) {
    void* pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return refused("mmap");
    std::memcpy(pages, code, size);
    if (mprotect(pages, mapped, PROT_READ | PROT_EXEC) != 0) {
        Status status = refused("mprotect to read+execute");
        munmap(pages, mapped);
        return status;
    }
    *address = pages;
    return {};
}

// A sealed memory file: written through the descriptor, mapped read+execute only.
Status publish_memfd(const uint8_t* code, size_t size, size_t mapped, void** address) {
    const int file = memfd_create("quire-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return refused("memfd_create");
    Status status;
    size_t written = 0;
    while (written < size) {
        const ssize_t n = write(file, code + written, size - written);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        written += size_t(n);
    }
    if (written < size || ftruncate(file, off_t(mapped)) != 0) {
        status = refused("write to memfd");
    } else if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        status = refused("sealing memfd");
    } else {
        void* pages = mmap(nullptr, mapped, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        if (pages == MAP_FAILED)
            status = refused("mmap of memfd to read+execute");
        else
            *address = pages;
    }
    close(file);
    return status;
}

}  // namespace

void refuse_publication(int ways) { g_refused_ways = ways; }

CodeMemory& CodeMemory::operator=(CodeMemory&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    std::swap(way_, other.way_);
    return *this;
}

CodeMemory::~CodeMemory() {
    if (address_ != nullptr) munmap(address_, size_);
}

Status CodeMemory::publish_by(Publication way, const uint8_t* code, size_t size, CodeMemory* memory) {
    if (int(way) < g_refused_ways) {
        errno = EACCES;
        return refused(way == Publication::mapping ? "mprotect to read+execute" : "memfd_create");
    }
    CodeMemory published;
    const size_t mapped = round_to_pages(size);
    if (way == Publication::mapping)
        QUIRE_TRY(publish_mapping(code, size, mapped, &published.address_));
    else
        QUIRE_TRY(publish_memfd(code, size, mapped, &published.address_));
    published.size_ = mapped;
    published.way_ = way;
    *memory = std::move(published);
    return {};
}

Status CodeMemory::publish(const uint8_t* code, size_t size, CodeMemory* memory) {
    Status first = publish_by(Publication::mapping, code, size, memory);
    if (first.ok()) return first;
    Status second = publish_by(Publication::memfd, code, size, memory);
    if (second.ok()) return second;
    return unsupported("%s; %s", first.message().c_str(), second.message().c_str());
}

}  // namespace quire::jit
