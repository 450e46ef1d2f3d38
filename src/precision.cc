#include "src/precision.h"

#include <algorithm>

#include "jit/args.h"
#include "jit/qk_amx.h"
#include "jit/qk_fours.h"
#include "jit/tile_bytes.h"
#include "jit/tile_value_bytes.h"
#include "jit/tile_words.h"
#include "jit/token_qk_bytes.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"
#include "jit/word_loader.h"
#include "src/precision_amx.h"
#include "src/precision_cycles.h"

namespace quire {
namespace {

// Words and bytes must do with this share of float32's cycles: the count leaves out loads, of which they have
// more, and for next to nothing precision is not given up.
constexpr double kWorthIt = 0.92, kTilesWorthIt = 0.85;

// Words of decode with 256 bits in groups of 16 and more are quicker than that count says wherever it has
// them as quick as floats (docs/performance.md, "Words as quick as floats").
double worth_of_words(const jit::RowKey& key) {
    return key.target->vector_bits == 256 && scale_group(key.format) >= 16 ? 1 : kWorthIt;
}

// Nor has that count bytes of nibbles with 256 bits and VNNI as quick as they are ("Bytes with AVX-VNNI").
double worth_of_bytes(const jit::RowKey& key) {
    return key.target->vector_bits == 256 && key.target->vnni ? 1.2 : kWorthIt;
}

// Of 256 bits more rows of the query take nibbles' digits in passes, and longer than floats (as above).
bool digits_take_one_pass(const jit::RowKey& key) {
    constexpr int kMost = 3;
    return key.target->vector_bits == 512 || !has_small_numbers(key.format) || key.rows <= kMost;
}

// As tiles of pairs of bfloat16 numbers, beside which decode has float32. Of f32, which takes longer to be
// made pairs of, as above.
constexpr int kRowsBesidePairs = 10;

// Scales are part of bfloat16 numbers, which so have no groups, and never take more than words do.
jit::Products tile_products(const jit::RowKey& key, quire_precision precision, bool has_words,
                            const Shared& of_group) {
    if (precision == QUIRE_PRECISION_MEDIUM && key.target->bf16) return jit::Products::bfloats;
    if (precision == QUIRE_PRECISION_HIGHEST || !has_words) return jit::Products::floats;
    const bool pays = tile_word_cycles(key, of_group) < kTilesWorthIt * tile_float_cycles(key);
    return pays ? jit::Products::words : jit::Products::floats;
}

// The query of three digits, which every eight keys take, beside rows of the cache in 32 KB of first-level
// cache: 16 heads of 576 were slower than in float32.
bool query_stays_near(jit::RowKey key) {
    constexpr int kMost = 28 << 10;
    key.products = jit::Products::three_bytes;
    return key.rows * jit::FoursForm(key).vectors() * key.target->vector_bits / 8 <= kMost;
}

// Of fewer rows weights take more than PV gains (measured on Zen 3 by fours, on Zen 5 by runs).
int least_byte_rows(const jit::RowKey& key) {
    if (jit::has_value_runs(key)) return key.format.type == QUIRE_INT4 ? 4 : 3;
    return jit::ValueBytes(key).by_fours() ? 2 : 1;
}

// Blocks of tokens (docs/performance.md): words always pay, and for keys bytes of the query more than they.
jit::Products token_products(quire_precision precision) {
    return precision == QUIRE_PRECISION_HIGHEST ? jit::Products::floats : jit::Products::words;
}
// Of fewer rows a weight for each row, key and group takes less than to scale the values (Zen 4; nibbles,
// whose scaled words take more than others', and on AVX2 bytes of blocks of tokens: docs/performance.md).
bool pays_to_scale(const jit::RowKey& key) {
    constexpr int kLargestGroup = 15;
    if (!jit::has_scaled_words(key) || scale_group(key.format) > kLargestGroup) return false;
    const bool nibbles = is_of_nibbles(row_format(key.format)), wide = key.target->vector_bits == 512;
    if (token_block_info(key.format.type)) return wide ? key.rows >= 4 : !nibbles && key.rows >= 2;
    return key.rows >= (wide && nibbles ? 5 : 4);
}
jit::Products token_value_products(const jit::RowKey& key, quire_precision precision) {
    if (precision == QUIRE_PRECISION_MEDIUM && jit::has_value_bytes(key) && key.rows >= least_byte_rows(key))
        return jit::Products::bytes;
    if (precision == QUIRE_PRECISION_HIGHEST && jit::has_value_fours(key)) return jit::Products::three_bytes;
    return token_products(precision);
}
jit::Products token_key_products(const jit::RowKey& key, quire_precision precision) {
    const int digits = precision == QUIRE_PRECISION_HIGHEST ? 3 : precision == QUIRE_PRECISION_HIGH ? 2 : 1;
    if (!jit::has_token_bytes(key.format, *key.target, digits)) return token_products(precision);
    constexpr jit::Products kOfDigits[] = {jit::Products::bytes, jit::Products::two_bytes,
                                           jit::Products::three_bytes};
    return kOfDigits[digits - 1];
}

}  // namespace

jit::Products key_products(const jit::RowKey& key, quire_precision precision) {
    if (token_block_info(key.format.type)) return token_key_products(key, precision);
    jit::Products best = jit::Products::floats;
    double least = float_cycles_of_keys(key);
    const auto consider = [&](jit::Products products, bool possible, double (*count)(const jit::RowKey&)) {
        const double worth = products == jit::Products::words   ? worth_of_words(key)
                             : products == jit::Products::bytes ? worth_of_bytes(key)
                                                                : kWorthIt;
        if (!possible || count(key) >= worth * least) return;
        best = products, least = count(key);
    };
    const auto fours = [&](int digits) { return jit::has_fours(key.format, *key.target, digits); };
    consider(jit::Products::three_bytes, fours(3) && query_stays_near(key) && digits_take_one_pass(key),
             number_cycles_of_fours);
    consider(jit::Products::words,
             precision != QUIRE_PRECISION_HIGHEST && jit::has_words(key.format) && !has_minima(key.format),
             word_cycles_of_keys);
    consider(jit::Products::two_bytes, precision != QUIRE_PRECISION_HIGHEST && fours(2),
             word_cycles_of_fours);
    consider(jit::Products::bytes, precision == QUIRE_PRECISION_MEDIUM && fours(1), byte_cycles_of_fours);
    return best;
}

jit::Products value_products(const jit::RowKey& key, quire_precision precision) {
    if (precision == QUIRE_PRECISION_MEDIUM && pays_to_scale(key)) return jit::Products::scaled_words;
    if (token_block_info(key.format.type)) return token_value_products(key, precision);
    // Where a group has a minimum, its codes are far from zero if one value is large: words add more than
    // `high` promises then.
    const bool of_numbers =
        precision == QUIRE_PRECISION_HIGHEST || (precision == QUIRE_PRECISION_HIGH && has_minima(key.format));
    if (of_numbers && jit::has_value_fours(key) &&
        number_cycles_of_value_fours(key) < kWorthIt * float_cycles_of_values(key))
        return jit::Products::three_bytes;
    if (of_numbers || !jit::has_words(key.format)) return jit::Products::floats;
    const double of_words = word_cycles_of_values(key), of_floats = float_cycles_of_values(key);
    const double least = std::min(of_words, of_floats);
    if (precision == QUIRE_PRECISION_MEDIUM && jit::has_value_bytes(key) &&
        key.rows >= least_byte_rows(key) && byte_cycles_of_values(key) < kWorthIt * least)
        return jit::Products::bytes;
    return of_words < worth_of_words(key) * of_floats ? jit::Products::words : jit::Products::floats;
}

void set_products(jit::RowKey* keys, jit::RowKey* values, quire_precision precision) {
    if (pays_by_scaled(*keys, *values, precision)) {
        keys->products = values->products = jit::Products::scaled_tiles;
        return;
    }
    if (pays_by_amx(*keys, *values, precision)) {
        keys->products = values->products = precision == QUIRE_PRECISION_HIGHEST
                                                ? jit::Products::three_digit_tiles
                                                : jit::Products::two_digit_tiles;
        return;
    }
    keys->products = key_products(*keys, precision);
    values->products = value_products(*values, precision);
}

// Each group's sums are converted and scaled: per two elements, so twice.
jit::Products key_tile_products(const jit::RowKey& key, quire_precision precision) {
    if (precision == QUIRE_PRECISION_HIGHEST && jit::has_tile_key_three_bytes(key) &&
        tile_three_byte_cycles(key) < kWorthIt * tile_float_cycles(key))
        return jit::Products::three_bytes;
    const Shared of_group = {2, 2};
    const jit::Products best = tile_products(key, precision, jit::has_tile_key_words(key), of_group);
    if (precision == QUIRE_PRECISION_HIGH && best == jit::Products::words &&
        jit::has_tile_key_two_bytes(key) && tile_two_byte_cycles(key) <= tile_word_cycles(key, of_group))
        return jit::Products::two_bytes;
    if (precision != QUIRE_PRECISION_MEDIUM || !jit::has_tile_key_bytes(key)) return best;
    const double least = best == jit::Products::bfloats ? tile_bfloat_cycles(key)
                         : best == jit::Products::words ? tile_word_cycles(key, of_group)
                                                        : tile_float_cycles(key);
    return tile_byte_cycles(key) < kTilesWorthIt * least ? jit::Products::bytes : best;
}

// Each group's weights of two keys: two products, conversions, and two operations that join them.
jit::Products value_tile_products(const jit::RowKey& key, quire_precision precision) {
    constexpr int kLeastGroup = 16;  // weights of smaller ones would take 1.5 MB with heads of 1024
    const bool words = jit::has_tile_value_words(key) && scale_group(key.format) >= kLeastGroup;
    const Shared of_group = {2, 4};
    const jit::Products best = tile_products(key, precision, words, of_group);
    if (precision != QUIRE_PRECISION_MEDIUM || !words || !jit::has_tile_value_bytes(key)) return best;
    const double least =
        best == jit::Products::bfloats ? tile_bfloat_cycles(key) : tile_word_cycles(key, of_group);
    return tile_byte_cycles_of_values(key) < kTilesWorthIt * least ? jit::Products::bytes : best;
}

jit::RowKey few_key(jit::RowKey key) {
    key.target = &without_tiles(*key.target);
    return key;
}

jit::Products few_value_products(const jit::RowKey& key, quire_precision precision) {
    if (precision == QUIRE_PRECISION_HIGHEST || token_block_info(key.format.type))
        return jit::Products::floats;
    if (value_tile_products(key, precision) == jit::Products::bytes) return jit::Products::bytes;
    return jit::has_tile_pv_rows(key) ? jit::Products::words : jit::Products::floats;
}

int most_few_rows(const AttentionSpec& spec, const Target& target) {
    const jit::RowKey keys = few_key({&target, spec.key_format, spec.D, 0}),
                      values = few_key({&target, spec.value_format, spec.Dv, 0});
    if (token_block_info(keys.format.type)) return 0;
    const bool has_values = spec.precision == QUIRE_PRECISION_HIGHEST
                                ? jit::has_tile_pv_number_rows(values)
                                : few_value_products(values, spec.precision) != jit::Products::floats;
    if (!has_values) return 0;
    const jit::Products of_keys = key_tile_products(keys, spec.precision);
    if (of_keys == jit::Products::floats || of_keys == jit::Products::bfloats) return 0;
    const int most = target.lanes() / spec.group() * spec.group();
    return most > kRowsBesideFew ? most : 0;
}

namespace {

// Below `highest` 16 rows have twice as many integer weights a key as it has values, and take in one pass
// more than twice the time of 8.
bool has_small_groups(const AttentionSpec& spec) {
    const auto small = [](const quire_format& f) { return scale_group(f) > 0 && scale_group(f) < 16; };
    return spec.precision != QUIRE_PRECISION_HIGHEST && (small(spec.key_format) || small(spec.value_format));
}

bool has_f32(const AttentionSpec& spec) {
    return spec.key_format.type == QUIRE_F32 || spec.value_format.type == QUIRE_F32;
}

bool is_of_numbers(const AttentionSpec& spec) {
    return scale_group(spec.key_format) == 0 && scale_group(spec.value_format) == 0;
}

// Beside tiles, which leave a part of the cache in the third level: rows of f32 take as long to come from
// there again as a vector of tiles does.
int rest_of_tiles(const AttentionSpec& spec, const Target& target) {
    if (has_f32(spec)) return 0;
    return target.vector_bits == 512 && spec.precision != QUIRE_PRECISION_MEDIUM ? 8 : 4;
}

// Twice decode's work for a key: not where tiles have half of it, those of bfloat16 numbers, and those of
// AVX2 below `highest`.
int rest_of_decode(const AttentionSpec& spec, const Target& target) {
    const bool wide = target.vector_bits == 512, medium = spec.precision == QUIRE_PRECISION_MEDIUM;
    const bool blocks = token_block_info(spec.key_format.type) && token_block_info(spec.value_format.type);
    if (most_few_rows(spec, target) > 0) return 0;
    if (!wide) return blocks || is_of_numbers(spec) || spec.precision == QUIRE_PRECISION_HIGHEST ? 4 : 0;
    if (blocks && !medium) return 12;  // which tiles would have to take apart
    return medium && target.bf16 && !blocks && !has_small_groups(spec) ? 0 : 8;
}

}  // namespace

namespace {

bool decodes_by_amx(const AttentionSpec& spec, const Target& target, int rows = jit::kMaxDecodeRows) {
    const int most = rows / spec.group() * spec.group();
    const jit::RowKey keys{&target, spec.key_format, spec.D, most},
        values{&target, spec.value_format, spec.Dv, most};
    return most > 0 &&
           (pays_by_amx(keys, values, spec.precision) || pays_by_scaled(keys, values, spec.precision));
}

}  // namespace

RestRows most_rest_rows(const AttentionSpec& spec, const Target& target) {
    // At `medium` a vector of rows by AMX takes less than decode of four (docs/performance.md, "Tiles of
    // bfloat16 by AMX"), and than decode that pays for whole tiles of query rows alone.
    const bool medium = spec.precision == QUIRE_PRECISION_MEDIUM;
    if (decodes_by_amx(spec, target, medium ? kRowsBesideFew : jit::kMaxDecodeRows))
        return {0, jit::kMaxDecodeRows};
    if (target.amx && medium) return {};
    return {rest_of_tiles(spec, target), rest_of_decode(spec, target)};
}

namespace {

// Tiles of 256 bits have two vectors for 13 to 16 rows, and are quicker than decode's passes over the rows:
// but where blocks of tokens would have to be taken apart.
bool decodes_most_rows(const AttentionSpec& spec, const Target& target, bool blocks) {
    return target.vector_bits == 512 || (blocks && !target.vnni && spec.precision != QUIRE_PRECISION_HIGHEST);
}

}  // namespace

int most_decode_rows(const AttentionSpec& spec, const Target& target) {
    if (decodes_by_amx(spec, target)) return jit::kMaxDecodeRows;
    const bool medium = spec.precision == QUIRE_PRECISION_MEDIUM;
    if (medium && target.bf16 && is_of_numbers(spec))
        return has_f32(spec) ? kRowsBesideFew : kRowsBesidePairs;
    const bool as_highest = spec.precision == QUIRE_PRECISION_HIGHEST || is_of_numbers(spec);
    const int large = as_highest ? 576 : 256;
    // Not of blocks of tokens, which would have to be taken apart.
    const bool blocks = token_block_info(spec.key_format.type) != nullptr ||
                        token_block_info(spec.value_format.type) != nullptr;
    const bool quick_tiles = target.amx && medium && !blocks;
    const bool all = std::max(spec.D, spec.Dv) <= large && most_few_rows(spec, target) == 0 && !quick_tiles &&
                     decodes_most_rows(spec, target, blocks);
    return all && !has_small_groups(spec) ? jit::kMaxDecodeRows : kRowsBesideFew;
}

std::string precision_note(const AttentionSpec& spec, const Target& target) {
    if (spec.precision == QUIRE_PRECISION_HIGHEST) return "";
    const auto of_decode = [&](Side of, int rows) {
        jit::RowKey keys{&target, spec.key_format, spec.D, rows},
            values{&target, spec.value_format, spec.Dv, rows};
        set_products(&keys, &values, spec.precision);
        return of == Side::key ? keys.products : values.products;
    };
    const auto side = [&](Side of, const quire_format& format, int dim,
                          jit::Products (*of_tiles)(const jit::RowKey&, quire_precision)) {
        std::string high, medium;
        const auto add = [&](jit::Products chosen, const std::string& rows) {
            if (chosen == jit::Products::words || chosen == jit::Products::two_bytes ||
                chosen == jit::Products::two_digit_tiles || chosen == jit::Products::scaled_tiles)
                high += rows + " ";
            if (chosen == jit::Products::bytes || chosen == jit::Products::bfloats ||
                chosen == jit::Products::scaled_words)
                medium += rows + " ";
        };
        const int few = target.jit() ? most_few_rows(spec, target) : 0;
        const int decode = target.jit() ? most_decode_rows(spec, target) : 0;
        const jit::RowKey tile{&target, row_format(format), dim, 0};
        for (int r = spec.group(); r <= std::max(few, decode); r += spec.group())
            add(r <= decode         ? of_decode(of, r)
                : of == Side::value ? few_value_products(few_key(tile), spec.precision)
                                    : of_tiles(few_key(tile), spec.precision),
                std::to_string(r));
        if (target.jit()) add(of_tiles(tile, spec.precision), "more");
        if (!medium.empty()) medium = "medium for " + medium + "query rows";
        if (!high.empty()) high = "high for " + high + "query rows";
        if (medium.empty() && high.empty()) return std::string("highest");
        return medium + (medium.empty() || high.empty() ? "" : " and ") + high;
    };
    return "precision: keys " + side(Side::key, spec.key_format, spec.D, key_tile_products) + ", values " +
           side(Side::value, spec.value_format, spec.Dv, value_tile_products) +
           "; all else runs as highest\n";
}

}  // namespace quire
