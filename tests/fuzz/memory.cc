#include "tests/fuzz/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::fuzz {
namespace {

constexpr size_t kPage = 4096;

uint8_t* map_between_guards(size_t bytes) {
    void* mapping =
        mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t* open = static_cast<uint8_t*>(mapping) + kPage;
    if (mapping == MAP_FAILED || mprotect(open, bytes, PROT_READ | PROT_WRITE) != 0) {
        std::perror("quire_fuzz: can't map memory");
        std::abort();
    }
    return open;
}

}  // namespace

uint8_t* Memory::take(size_t bytes, Flush flush) {
    if (bytes > kMost) std::abort();  // callers check
    if (used_ == pieces_.size()) {
        pieces_.emplace_back();
        pieces_.back().open = map_between_guards(kMost);
    }
    Piece& p = pieces_[used_++];
    p.bytes = bytes;
    p.data = flush == Flush::end ? p.open + kMost - bytes : p.open;
    if (flush == Flush::begin && bytes == 0) p.data = p.open - 1;
    p.begin = std::max(p.open, p.data - kPage);
    p.end = std::min(p.open + kMost, p.data + bytes + kPage);
    return p.data;
}

void Memory::remember() {
    for (size_t i = 0; i < used_; ++i) pieces_[i].before.assign(pieces_[i].begin, pieces_[i].end);
}

int Memory::changed(const std::vector<std::vector<uint8_t>>& may_change) const {
    for (size_t i = 0; i < used_; ++i) {
        const Piece& p = pieces_[i];
        const size_t bytes = size_t(p.end - p.begin);
        if (std::memcmp(p.begin, p.before.data(), bytes) == 0) continue;
        if (i >= may_change.size() || may_change[i].empty()) return int(i);
        const size_t lead = size_t(p.data - p.begin);
        for (size_t j = 0; j < bytes; ++j) {
            const bool may = j >= lead && j - lead < may_change[i].size() && may_change[i][j - lead];
            if (!may && p.begin[j] != p.before[j]) return int(i);
        }
    }
    return -1;
}

}  // namespace quire::fuzz
