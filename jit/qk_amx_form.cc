// What QK by AMX takes of the query and of keys, and for which formats there is one.
#include <algorithm>

#include "jit/qk_amx.h"
#include "jit/scaled_amx.h"

namespace quire::jit {

bool has_key_amx(const quire_format& format, int dim, const Target& target) {
    if (!target.amx || (format.type != QUIRE_INT8 && format.type != QUIRE_INT4)) return false;
    const int of_dword = format.type == QUIRE_INT4 ? 8 : 4;  // elements
    return dim % of_dword == 0 && format.quant_group <= kMostOfGroup && format.quant_group % of_dword == 0;
}

bool takes_key_amx(const RowKey& key) {
    return (key.tile_digits() > 0 && has_key_amx(key.format, key.dim, *key.target)) ||
           (key.scales_tiles() && has_scaled_amx(key.format, key.dim, *key.target));
}

KeyAmx::KeyAmx(const RowKey& key)
    : rows(key.rows),
      digits(key.scales_tiles() ? 2 : key.tile_digits()),
      parts(key.format.type == QUIRE_INT4 ? 2 : 1),
      part_bytes(key.dim / parts),
      groups(key.scales_tiles() ? 1 : key.groups()),
      group_bytes(part_bytes / groups) {
    constexpr int kLanes = 16, kChunk = 64;
    while (padded_rows < rows || (key.scales_tiles() && padded_rows < kLanes)) padded_rows *= 2;
    while (together < groups && padded_rows * together < kLanes) together *= 2;
    for (int part = 0; part < parts; ++part)
        for (int at = 0; at < part_bytes; at += kChunk)
            chunks.push_back({part, at, std::min(kChunk, part_bytes - at)});
    for (int set = 0; set < sets(); ++set)
        for (int i = 0; i < int(chunks.size()); ++i) {
            const int first = group_of(chunks[size_t(i)], 0),
                      last = group_of(chunks[size_t(i)], chunks[size_t(i)].bytes - 1);
            if (last >= set * together && first < (set + 1) * together) steps.push_back({set, i});
        }
}

}  // namespace quire::jit
