#include "gather.h"

#include <algorithm>
#include <cstring>

namespace quire_ggml {
namespace {

constexpr int64_t kMaxTokens = 64;
constexpr uint16_t kHidden = 0xfc00;  // -Inf
constexpr uint64_t kHidden4 = 0xfc00fc00fc00fc00u;

const char* row_of(const Problem& p, int64_t token) {
    return static_cast<const char*>(p.mask.data) + token * p.mask.strides[2] * 2;
}

// Calls visit(cell, mask's number) for all that is not hidden; hidden ones go by in fours.
template <typename Visit>
void visit_row(const char* row, int64_t keys, const Visit& visit) {
    for (int64_t j = 0; j < keys;) {
        uint64_t four;
        if (j + 4 <= keys) {
            std::memcpy(&four, row + j * 2, sizeof four);
            if (four == kHidden4) {
                j += 4;
                continue;
            }
        }
        for (const int64_t end = std::min(j + 4, keys); j < end; ++j) {
            uint16_t number;
            std::memcpy(&number, row + j * 2, sizeof number);
            if (number != kHidden) visit(j, number);
        }
    }
}

// Cells that the token sees, or -1 where something is added to a score.
int64_t count_row(const Problem& p, int64_t token) {
    int64_t count = 0;
    bool added = false;
    visit_row(row_of(p, token), p.keys, [&](int64_t, uint16_t number) {
        ++count;
        added |= uint16_t(number << 1) != 0;
    });
    return added ? -1 : count;
}

}  // namespace

bool gather_cells(const Problem& p, Gather* gather) {
    if (!p.has_mask || p.tokens < 2 || p.tokens > kMaxTokens || p.streams != 1 || p.mask.shape[1] != 1)
        return false;
    if (p.max_bias > 0) return false;
    // A few tokens tell most calls that are no such thing.
    const int64_t limit = p.keys / 2;
    const int64_t first = count_row(p, 0), last = count_row(p, p.tokens - 1);
    if (first < 0 || last < 0 || first + last > 2 * limit) return false;
    gather->keys.assign(1, 0);
    gather->most = 1;
    for (int64_t token = 0; token < p.tokens; ++token) {
        const int64_t count = count_row(p, token);
        if (count < 0) return false;
        gather->keys.push_back(gather->keys.back() + count);
        gather->most = std::max(gather->most, count);
        if (gather->keys.back() > limit * p.tokens) return false;
    }
    gather->queries.clear();
    for (int64_t token = 0; token <= p.tokens; ++token) gather->queries.push_back(token);
    gather->cells.resize(size_t(p.tokens * gather->most));
    for (int64_t token = 0; token < p.tokens; ++token) {
        int64_t* to = &gather->cells[size_t(token * gather->most)];
        visit_row(row_of(p, token), p.keys, [&](int64_t cell, uint16_t) { *to++ = cell; });
    }
    return true;
}

}  // namespace quire_ggml
