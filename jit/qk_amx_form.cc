// What QK by AMX takes of the query and of keys, and for which formats there is one.
#include <algorithm>
#include <utility>

#include "jit/qk_amx.h"
#include "jit/scaled_amx.h"

namespace quire::jit {
namespace {

constexpr int kLanes = 16;

}  // namespace

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
    while (padded_rows < rows || (key.scales_tiles() && padded_rows < kLanes)) padded_rows *= 2;
    while (together < groups && padded_rows * together < kLanes) together *= 2;
    add_chunks();
    add_steps();
    if (key.scales_tiles()) return;
    KeyAmx joined = *this, mixing = *this;
    if (joined.join_parts() && joined.cycles() < cycles()) *this = joined;
    if (mixing.mix_digits() && mixing.cycles() < cycles()) *this = mixing;
}

void KeyAmx::add_chunks() {
    constexpr int kChunk = 64;
    chunks.clear();
    for (int at = 0; joins_parts && at < part_bytes; at += kHalf) chunks.push_back({0, at, kChunk});
    for (int part = 0; !joins_parts && part < parts; ++part)
        for (int at = 0; at < part_bytes; at += kChunk)
            chunks.push_back({part, at, std::min(kChunk, part_bytes - at)});
}

void KeyAmx::add_steps() {
    steps.clear();
    for (int set = 0; set < sets(); ++set)
        for (int i = 0; i < int(chunks.size()); ++i) {
            const int first = group_of(chunks[size_t(i)], 0),
                      last = group_of(chunks[size_t(i)], chunks[size_t(i)].bytes - 1);
            if (last >= first_group(set) && first < end_group(set)) steps.push_back({set, i});
        }
}

bool KeyAmx::join_parts() {
    if (parts == 1 || part_bytes % 8 != 0) return false;
    joins_parts = true;
    add_chunks();
    add_steps();
    return true;
}

// Of three digits, all together or the lowest by itself, which has the more groups.
bool KeyAmx::mix_digits() {
    if (parts > 1 && !join_parts()) return false;
    together = kLanes / padded_rows;
    KeyAmx best = *this;
    for (const int first : {digits, digits - 1}) {
        KeyAmx form = *this;
        if (!form.add_mixed(0, first) || (first < digits && !form.add_mixed(first, digits - first))) continue;
        if (form.sets() > kMostSums) continue;
        form.add_steps();
        if (best.mixed.empty() || form.cycles() < best.cycles()) best = form;
    }
    *this = best;
    return !mixed.empty();
}

// Sets of these digits, of as many groups as there is room for; false: there is none.
bool KeyAmx::add_mixed(int digit, int count) {
    if (count > together) return false;
    int width = 1;
    while (2 * width * count <= together && groups % (2 * width) == 0) width *= 2;
    for (int group = 0; group < groups; group += width) mixed.push_back({digit, count, group, width});
    return true;
}

// Of sixteen keys on Granite Rapids, with what vectors make of sums.
double KeyAmx::cycles() const {
    constexpr double kProduct = 22, kSum = 36;
    return planes() * (kProduct * double(steps.size()) + kSum * sets());
}

std::vector<KeyAmx::Column> KeyAmx::columns_of(int set, int group) const {
    if (group < first_group(set) || group >= std::min(end_group(set), groups)) return {};
    const int at = group - first_group(set);
    if (mixed.empty()) return {{at, 0}};
    std::vector<Column> columns;
    const Set& of = mixed[size_t(set)];
    for (int i = 0; i < of.digits; ++i) columns.push_back({i * of.groups + at, of.digit + i});
    return columns;
}

}  // namespace quire::jit
