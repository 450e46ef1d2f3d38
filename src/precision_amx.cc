#include "src/precision_amx.h"

#include <algorithm>

#include "jit/qk_amx.h"
#include "jit/scaled_amx.h"
#include "jit/token_qk_amx.h"
#include "jit/weights_amx.h"

namespace quire {
namespace {

// Whether a chunk of nibbles is of both parts, so that heads of 64 fill a tile, too.
bool joins_nibbles(jit::RowKey keys, quire_precision precision) {
    keys.products = precision == QUIRE_PRECISION_HIGHEST ? jit::Products::three_digit_tiles
                                                         : jit::Products::two_digit_tiles;
    return jit::KeyAmx(keys).joins_parts;
}

// Groups of both sides that a key has for each 64 elements.
double groups_of_key(const jit::RowKey& keys, const jit::RowKey& values) {
    return 64. / scale_group(keys.format) + 64. / scale_group(values.format);
}

// Decode by AMX has tiles of 16 rows, whatever there are: what it takes for a key is mostly theirs, and a
// number of each query row and group (cycles for 128 elements, of Granite Rapids: docs/performance.md,
// "Decode by AMX"). Others take as long for each query row.
bool rows_pay_by_amx(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision) {
    if (!jit::has_key_amx(keys.format, keys.dim, *keys.target) || !jit::has_value_amx(values)) return false;
    // Less for a query row, of that more for a group, and more for a key: tiles read DRAM worse, of which
    // nibbles are half as long.
    struct Cycles {
        double of_row, of_group, of_key, of_nibbles, of_mixed;
    };
    constexpr Cycles kHighest = {10, 1.06, 40, 22, 17}, kHigh = {7.4, 0.77, 30, 29, 18},
                     kMedium = {3.9, 0.77, 27, 18, 18};
    // Of more than four rows, which vectors take in two passes.
    constexpr Cycles kHighestOfMore = {10, 1.06, 28, 22, 17};
    const bool nibbles = is_of_nibbles(keys.format) && is_of_nibbles(values.format);
    // At `medium` what is for few rows is no quicker with so many, and reads DRAM worse; but of large heads.
    const bool large = std::max(keys.dim, values.dim) > 128;
    const bool as_high = precision == QUIRE_PRECISION_HIGH || (keys.rows > kRowsBesideFew && !large);
    // Up to four rows have the digits side by side, which takes less. (Of large heads vectors read DRAM
    // better at `high`.)
    const bool joined = nibbles && joins_nibbles(keys, precision),
               mixed = joined && keys.rows <= 4 && !(large && precision == QUIRE_PRECISION_HIGH);
    const Cycles& highest = keys.rows > 4 ? kHighestOfMore : kHighest;
    const Cycles& of = precision == QUIRE_PRECISION_HIGHEST ? highest : as_high ? kHigh : kMedium;
    const double groups = groups_of_key(keys, values);
    // Rows of less than a tile's 64 bytes fill it as all do.
    const double of_head = std::max(1., (nibbles && !joined ? 128. : 64.) / std::min(keys.dim, values.dim));
    const double of_key = mixed ? of.of_mixed : nibbles ? of.of_nibbles : of.of_key;
    return keys.rows * (of.of_row - groups * of.of_group) > of_key * of_head;
}

// The same of blocks of tokens (docs/performance/decode-amx.md, "Blocks of tokens by tiles"): large heads
// have more lines of the query than tiles to hold them.
bool tokens_pay_by_amx(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision) {
    if (!jit::has_token_key_amx(keys.format, keys.dim, *keys.target) || !jit::has_value_amx(values))
        return false;
    struct Cycles {
        double of_row, of_group, of_key, of_nibbles;
    };
    constexpr Cycles kHighest = {10, 1.06, 30, 22}, kHigh = {7.4, 1, 43, 25}, kMedium = {7.4, 1, 43, 32};
    const bool nibbles = is_of_nibbles(row_format(keys.format)) && is_of_nibbles(row_format(values.format));
    const Cycles& of = precision == QUIRE_PRECISION_HIGHEST ? kHighest
                       : precision == QUIRE_PRECISION_HIGH  ? kHigh
                                                            : kMedium;
    const double of_head = std::max(keys.dim, values.dim) > 128 ? 1.3 : 1;
    return keys.rows * (of.of_row - groups_of_key(keys, values) * of.of_group) >
           (nibbles ? of.of_nibbles : of.of_key) * of_head;
}

}  // namespace

bool pays_by_amx(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision) {
    const bool tokens = token_block_info(keys.format.type) != nullptr;
    if (tokens != (token_block_info(values.format.type) != nullptr)) return false;
    return tokens ? tokens_pay_by_amx(keys, values, precision) : rows_pay_by_amx(keys, values, precision);
}

namespace {

// Of codes with their scales, which take longer for a key and less for a query row and a group, from so many
// query rows on (docs/performance/decode-scaled.md); 0: never.
int least_scaled_rows(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision) {
    constexpr int kLarge = 128, kSmall = 80;
    const int group = std::max(scale_group(keys.format), scale_group(values.format)),
              dim = std::min(keys.dim, values.dim);
    const bool medium = precision == QUIRE_PRECISION_MEDIUM;
    if (group > (dim > kLarge ? 64 : dim > kSmall ? 32 : 16)) return 0;
    if (group < 16) return medium ? kRowsBesideFew + 1 : 8;
    return medium && group > 16 ? kRowsBesideFew + 1 : 9;
}

}  // namespace

bool pays_by_scaled(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision) {
    if (precision == QUIRE_PRECISION_HIGHEST || !jit::has_scaled_amx(keys.format, keys.dim, *keys.target) ||
        !jit::has_scaled_amx(values.format, values.dim, *values.target))
        return false;
    const int least = least_scaled_rows(keys, values, precision);
    return least > 0 && keys.rows >= least;
}

}  // namespace quire
