// What QK by AMX takes of the query and of keys, and for which formats there is one.
#include <algorithm>

#include "jit/qk_amx.h"

namespace quire::jit {

bool has_key_amx(const quire_format& format, int dim, const Target& target) {
    if (!target.amx || (format.type != QUIRE_INT8 && format.type != QUIRE_INT4)) return false;
    const int of_dword = format.type == QUIRE_INT4 ? 8 : 4;  // elements
    return dim % of_dword == 0 && format.quant_group <= kMostOfGroup && format.quant_group % of_dword == 0;
}

KeyAmx::KeyAmx(const RowKey& key)
    : rows(key.rows),
      digits(key.tile_digits()),
      parts(key.format.type == QUIRE_INT4 ? 2 : 1),
      part_bytes(key.dim / parts),
      groups(key.groups()),
      group_bytes(key.format.quant_group / parts) {
    constexpr int kLanes = 16, kChunk = 64;
    while (padded_rows < rows) padded_rows *= 2;
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
