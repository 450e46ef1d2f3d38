// What QK by AMX over blocks of tokens takes of the query, and for which formats there is one.
#include <algorithm>

#include "jit/amx.h"
#include "jit/token_qk_amx.h"
#include "src/token_blocks.h"

namespace quire::jit {

bool has_token_key_amx(const quire_format& format, int dim, const Target& target) {
    return target.amx && token_block_info(format.type) != nullptr && dim >= TokenKeyAmx::kChunk &&
           format.quant_group <= kMostOfGroup;
}

bool takes_token_key_amx(const RowKey& key) {
    return key.tile_digits() > 0 && has_token_key_amx(key.format, key.dim, *key.target);
}

TokenKeyAmx::TokenKeyAmx(const RowKey& key)
    : rows(key.rows),
      digits(key.tile_digits()),
      dim(key.dim),
      group_size(scale_group(key.format)),
      parts(is_of_nibbles(row_format(key.format)) ? 2 : 1) {
    for (int chunk = 0; chunk < chunks();) {
        const std::vector<int> groups = groups_of(chunk);
        int end = chunk + 1;
        while (end < chunks() && groups_of(end) == groups) ++end;
        add_sets(chunk, end - chunk, groups.front(), groups.back() + 1);
        chunk = end;
    }
}

std::vector<int> TokenKeyAmx::groups_of(int chunk) const {
    std::vector<int> groups;
    for (int byte = 0; byte < kChunk; ++byte)
        if (const int d = element_of(chunk, byte); d >= 0) groups.push_back(d / group_size);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups;
}

// As many groups a set as there is room for, all sets about the same.
void TokenKeyAmx::add_sets(int chunk, int chunks, int first, int end) {
    const int most = std::max(1, kMostLines / (digits * rows)), count = (end - first + most - 1) / most;
    for (int i = 0; i < count; ++i) {
        const int from = first + (end - first) * i / count, to = first + (end - first) * (i + 1) / count;
        sets.push_back({chunk, chunks, from, to - from});
    }
}

int TokenKeyAmx::element_of(int chunk, int byte) const {
    if (parts == 2) {
        const int d = chunk * kChunk + byte % (kChunk / 2) * 2 + byte / (kChunk / 2);
        return d < dim ? d : -1;
    }
    const int d = chunk_at(chunk) + byte;
    return d < chunk * kChunk ? -1 : d;
}

int TokenKeyAmx::query_at(int set, int chunk) const {
    int tiles = 0;
    for (int i = 0; i < set; ++i) tiles += this->tiles(sets[size_t(i)]) * sets[size_t(i)].chunks;
    if (chunk > 0) tiles += this->tiles(sets[size_t(set)]) * chunk;
    return tiles * kTileBytes;
}

}  // namespace quire::jit
