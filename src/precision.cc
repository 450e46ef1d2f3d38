#include "src/precision.h"

#include <algorithm>

#include "jit/args.h"
#include "jit/byte_loader.h"
#include "jit/qk_fours.h"
#include "jit/tile_bytes.h"
#include "jit/tile_value_bytes.h"
#include "jit/tile_words.h"
#include "jit/token_codes.h"
#include "jit/token_keys.h"
#include "jit/token_qk_bytes.h"
#include "jit/weights.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"
#include "jit/word_loader.h"

namespace quire {
namespace {

// Words and bytes must do with this share of float32's cycles: the count leaves out loads, of which they have
// more, and for next to nothing precision is not given up.
constexpr double kWorthIt = 0.92, kTilesWorthIt = 0.85;

// Up to so many rows decode is as quick as what most_few_rows() is for, or as tiles of AMX.
constexpr int kRowsBesideFew = 12;

// Cycles of vector operations: multiplications have two pipes, all together three (Zen 3); with 512 bits the
// same two (Intel), or four (Zen 5; Zen 4 takes twice as long for either).
double cycles(const Target& target, double multiplications, double others) {
    const double pipes = target.vector_bits < 512 ? 3 : target.of_intel() ? 2 : 4;
    return std::max(multiplications / 2, (multiplications + others) / pipes);
}

// Of codes that are turned, a key: five operations for eight dwords; where nibbles are taken as tops, two
// more.
double turning_cycles(const jit::RowKey& key) {
    const int dwords = key.dim / jit::codes_of_dword(key.format);
    const bool raises = jit::takes_tops(key) && is_of_nibbles(key.format);
    return cycles(*key.target, 0, dwords / 8. * (raises ? 7 : 5));
}

// The operations that jit/qk.cc and jit/pv.cc emit for one key. Codes to f32 lanes: widen (or cut out),
// convert, two more for nibbles, and scale (or the scores, in the end); then one FMA a row.
double float_cycles_of_keys(const jit::RowKey& key) {
    if (jit::turns_keys(key)) return key.vecs() * cycles(*key.target, key.rows, 2) + turning_cycles(key);
    const double widen = is_of_nibbles(key.format) ? 3 : 2;
    return key.vecs() * cycles(*key.target, key.rows + !key.one_scale(), widen);
}

// The same, or instead of scaling a weight for each row and group.
double float_cycles_of_values(const jit::RowKey& key) {
    const double widen = is_of_nibbles(key.format) ? 3 : 2;
    if (!jit::folds_scales(key)) return key.vecs() * cycles(*key.target, key.rows + 1, widen);
    const double weights = double(key.rows * key.scales_stride()) / key.target->lanes();
    return key.vecs() * cycles(*key.target, key.rows, widen) + cycles(*key.target, weights, weights);
}

// Of tiles, a vector of rows and two elements: two FMA, or one dot product of words, and what each
// group of elements adds.
struct Shared {
    double multiplications, others;
};
double tile_float_cycles(const jit::RowKey& key) { return cycles(*key.target, 2, 0); }
// Half of them, or of AMX an eighth, with what is loaded for its tiles.
double tile_bfloat_cycles(const jit::RowKey& key) {
    return tile_float_cycles(key) / (key.target->amx ? 8 : 2);
}
double tile_word_cycles(const jit::RowKey& key, const Shared& of_group) {
    const double groups = 1. / scale_group(key.format), addition = key.target->vnni ? 0 : 1;
    return cycles(*key.target, 1 + of_group.multiplications * groups, addition + of_group.others * groups);
}

// Half a dot product of bytes, and an FMA for each span and each part; or for two spans a dot product of
// words, a shift and an or, and for each part a conversion, too. Weighed spans: two products of bytes, one of
// words, and an addition for both.
double tile_byte_cycles(const jit::RowKey& key) {
    const jit::ByteTileForm form(key.format, 1, *key.target);
    const double spans = 2. / jit::kByteTileSpan, parts = 2. / form.part;
    if (form.joins) return cycles(*key.target, .5 + spans / 2 + parts, spans + parts);
    if (form.weighs) return cycles(*key.target, .5 + spans + parts, 2 * spans + parts);
    return cycles(*key.target, .5 + spans + parts, 0);
}

// Values: half a dot product of bytes, and for each run of keys a conversion and an FMA, without VNNI also
// three additions and a product; for each two weights of a group two FMA and 2.5 operations that join them,
// before which probabilities are related to the run's largest.
double tile_byte_cycles_of_values(const jit::RowKey& key) {
    const double runs = 2. / jit::kWeightRun, groups = 1. / scale_group(key.format), row = 2. / key.dim;
    const double adding = key.target->vnni ? 0 : runs;  // of words
    return cycles(*key.target, .5 + runs + adding + 2 * groups + row, runs + 3 * adding + 2.5 * groups + row);
}

// Three halves, and for each part and sum an FMA; a shift and two conversions, or where all digits are one
// sum two shifts, an addition and a conversion.
double tile_three_byte_cycles(const jit::RowKey& key) {
    const jit::ByteTileForm form(key.format, 3, *key.target);
    const double parts = 2. / form.part;
    return cycles(*key.target, 1.5 + form.sums * parts, (form.sums == 2 ? 3 : 4) * parts);
}

// Two halves, and for each part an FMA; a shift, an addition and a conversion.
double tile_two_byte_cycles(const jit::RowKey& key) {
    const double parts = 2. / jit::ByteTileForm(key.format, 2, *key.target).part;
    return cycles(*key.target, 1 + parts, 3 * parts);
}

// Scales are part of bfloat16 numbers, which so have no groups, and never take more than words do.
jit::Products tile_products(const jit::RowKey& key, quire_precision precision, bool has_words,
                            const Shared& of_group) {
    if (precision == QUIRE_PRECISION_MEDIUM && key.target->bf16) return jit::Products::bfloats;
    if (precision == QUIRE_PRECISION_HIGHEST || !has_words) return jit::Products::floats;
    const bool pays = tile_word_cycles(key, of_group) < kTilesWorthIt * tile_float_cycles(key);
    return pays ? jit::Products::words : jit::Products::floats;
}

// A chunk of 4 L elements: its words, and for each row two dot products, of which one starts the sum, a
// conversion and a scaling FMA.
double word_cycles_of_keys(const jit::RowKey& of_floats) {
    jit::RowKey key = of_floats;
    key.products = jit::Products::words;
    const double addition = key.target->vnni ? 0 : 1;
    if (jit::turns_keys(key))
        return key.vecs() / 2. * cycles(*key.target, key.rows, 1.75 + addition * key.rows) +
               turning_cycles(key);
    const int lanes = key.target->lanes(), chunks = key.query_words() / (4 * lanes);
    const double split = is_of_nibbles(key.format) ? 4 : 3, mixed = scale_group(key.format) < 4 * lanes;
    return chunks * cycles(*key.target, key.rows * 3, split + mixed + key.rows * (addition + 1));
}

// A vector of codes, whose chunks are transposed four at a time: for each row a dot product for every vector
// and digit, and for every four keys and run a conversion, a scaling FMA (one for all runs that share a
// scale) and what joins digits, or a factor: one multiplication more for one digit and for three, and two
// other operations for two and for three. Joined runs: for all four two dot products, two shifts with
// an or each, a conversion and an FMA. Weighed words: a product of bytes for each part and one of words, of
// which each is added to another, and for each run a conversion and an FMA.
double cycles_of_fours(jit::RowKey key, jit::Products products) {
    key.products = products;
    const jit::FoursForm form(key);
    const double codes = 3 + 3 * (form.parts - 1), runs = form.runs() / 4.;
    if (form.joins_runs)
        return form.chunks * cycles(*key.target, key.rows * (form.parts + .75), codes + .5 + key.rows * 1.25);
    if (form.weighs_words)
        return form.chunks * cycles(*key.target, key.rows * (form.parts + 1 + runs),
                                    codes + 2 * runs + key.rows * (form.parts + runs));
    const double scaling = form.runs_share_scale ? 1. / form.runs() : 1;
    const double multiplications = scaling + (form.digits == 2 ? 0 : 1), others = form.digits == 1 ? 1 : 3;
    return form.chunks * cycles(*key.target, key.rows * (form.parts * form.digits + runs * multiplications),
                                codes + runs * (2 + key.rows * others));
}
double byte_cycles_of_fours(const jit::RowKey& key) { return cycles_of_fours(key, jit::Products::bytes); }
double word_cycles_of_fours(const jit::RowKey& key) { return cycles_of_fours(key, jit::Products::two_bytes); }
double number_cycles_of_fours(const jit::RowKey& key) {
    return cycles_of_fours(key, jit::Products::three_bytes);
}

// The query of three digits, which every eight keys take, beside rows of the cache in 32 KB of first-level
// cache: 16 heads of 576 were slower than in float32.
bool query_stays_near(jit::RowKey key) {
    constexpr int kMost = 28 << 10;
    key.products = jit::Products::three_bytes;
    return key.rows * jit::FoursForm(key).vectors() * key.target->vector_bits / 8 <= kMost;
}

// A vector of two keys: interleaving, and one dot product a row; and for each pair of keys the weights, as
// many pairs at a time as fit a vector.
double word_cycles_of_values(const jit::RowKey& key) {
    const double vectors = double(key.weight_stride()) / key.target->lanes(), rows = key.rows;
    const double addition = key.target->vnni ? 0 : 1, interleave = is_of_nibbles(key.format) ? 2.5 : 2;
    const double permuted = key.target->vector_bits == 512 ? rows / 2 : rows;  // weights, for two vectors
    const double mixed = scale_group(key.format) % key.target->lanes() == 0 ? 0 : permuted;
    const double multiplications = key.vecs() * rows + vectors * (2 + 2 * rows) + rows / 2;
    const double others =
        key.vecs() * (interleave + mixed + addition * rows) + vectors * (2 + 6 * rows) + rows / 2;
    return cycles(*key.target, multiplications, others) / 2;
}

// A vector of four keys: four permutations and two more operations for two of them, and three dot products a
// row; for each row and group the weights: three products, and seven operations.
double number_cycles_of_value_fours(const jit::RowKey& key) {
    const double weights = double(key.rows * key.groups()) / key.target->lanes();
    return cycles(*key.target, key.vecs() * key.rows * .75 + 3 * weights, key.vecs() * .75 + 7 * weights);
}

// A vector of a run of keys: for each row four dot products, a conversion and a product; two permutations for
// each four, or seven operations for two vectors of nibbles. The weights, of a set of groups: scales, which
// all rows share; for each row a product and a conversion, two products, which a vector holds, and three that
// pack; and for each four rows their largest probabilities and factors.
double run_cycles_of_values(const jit::RowKey& key) {
    const jit::ValueRuns form(key);
    constexpr double kFours = jit::ValueRuns::kRun / 4;
    const double rows = key.rows, scales = std::min(key.scales_stride(), jit::ValueRuns::kSet),
                 codes = is_of_nibbles(key.format) ? 3.5 : 2;
    const double values = key.vecs() * cycles(*key.target, rows * (kFours + 1), kFours * codes + rows),
                 of_scales = cycles(*key.target, scales + 1, 3 * scales + 10),
                 of_rows = cycles(*key.target, 3 * rows + 3 * form.row_fours, 5 * rows + 22 * form.row_fours);
    return (values + form.sets * (of_scales + of_rows)) / jit::ValueRuns::kRun;
}

// A vector of eight keys: half of ten operations that bring the codes of four side by side, twice; for each
// row two products of bytes and one of words, of which two are added to another. The weights of eight keys:
// probabilities, scales and, for each set of groups, what both make. Signs: a product of them for each four.
// By fours: bytes of four come side by side in four operations, and each four has a product of words and a
// largest probability.
double byte_cycles_of_values(const jit::RowKey& key) {
    if (jit::has_value_runs(key)) return run_cycles_of_values(key);
    const jit::ValueBytes form(key);
    const double sets = form.sets, rows = key.rows, vecs = key.vecs(), fours = form.by_fours() ? 1 : 0;
    const double signs = form.signs ? 2 * vecs + 6 * sets : 0;
    const double multiplications = vecs * rows * (3 + fours) + rows * (1 + 2 * sets + 2 * fours) + 4 * sets;
    const double others =
        vecs * (10 - 6 * fours + rows * 2) + rows * (4 + sets + 9 * fours) + 18 * sets + 18 * fours + signs;
    return cycles(*key.target, multiplications, others) / jit::ValueBytes::kTurn;
}

// Of fewer rows weights take more than PV gains (measured on Zen 3 by fours, on Zen 5 by runs).
int least_byte_rows(const jit::RowKey& key) {
    if (jit::has_value_runs(key)) return is_of_nibbles(key.format) ? 4 : 3;
    return jit::ValueBytes(key).by_fours() ? 2 : 1;
}

// Blocks of tokens (docs/performance.md): words always pay for keys, and bytes of the query more than they;
// for values where a vector has no more than two weights.
jit::Products token_products(quire_precision precision) {
    return precision == QUIRE_PRECISION_HIGHEST ? jit::Products::floats : jit::Products::words;
}
jit::Products token_value_products(const jit::RowKey& key, quire_precision precision) {
    if (precision == QUIRE_PRECISION_MEDIUM && jit::has_value_bytes(key)) return jit::Products::bytes;
    if (precision == QUIRE_PRECISION_HIGHEST && jit::has_value_fours(key)) return jit::Products::three_bytes;
    return token_products(scale_group(key.format) < key.target->lanes() / 2 ? QUIRE_PRECISION_HIGHEST
                                                                            : precision);
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
        if (!possible || count(key) >= kWorthIt * least) return;
        best = products, least = count(key);
    };
    const auto fours = [&](int digits) { return jit::has_fours(key.format, *key.target, digits); };
    consider(jit::Products::three_bytes, fours(3) && query_stays_near(key), number_cycles_of_fours);
    consider(jit::Products::words, precision != QUIRE_PRECISION_HIGHEST && jit::has_words(key.format),
             word_cycles_of_keys);
    consider(jit::Products::two_bytes, precision != QUIRE_PRECISION_HIGHEST && fours(2),
             word_cycles_of_fours);
    consider(jit::Products::bytes, precision == QUIRE_PRECISION_MEDIUM && fours(1), byte_cycles_of_fours);
    return best;
}

jit::Products value_products(const jit::RowKey& key, quire_precision precision) {
    if (token_block_info(key.format.type)) return token_value_products(key, precision);
    if (precision == QUIRE_PRECISION_HIGHEST && jit::has_value_fours(key) &&
        number_cycles_of_value_fours(key) < kWorthIt * float_cycles_of_values(key))
        return jit::Products::three_bytes;
    if (precision == QUIRE_PRECISION_HIGHEST || !jit::has_words(key.format)) return jit::Products::floats;
    const double of_words = word_cycles_of_values(key), of_floats = float_cycles_of_values(key);
    const double least = std::min(of_words, of_floats);
    if (precision == QUIRE_PRECISION_MEDIUM && jit::has_value_bytes(key) &&
        key.rows >= least_byte_rows(key) && byte_cycles_of_values(key) < kWorthIt * least)
        return jit::Products::bytes;
    return of_words < kWorthIt * of_floats ? jit::Products::words : jit::Products::floats;
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

// Beside tiles, which leave a part of the cache in the third level: rows of f32 take as long to come from
// there again as a vector of tiles does.
int rest_of_tiles(const AttentionSpec& spec, const Target& target) {
    if (spec.key_format.type == QUIRE_F32 || spec.value_format.type == QUIRE_F32) return 0;
    return target.vector_bits == 512 && spec.precision != QUIRE_PRECISION_MEDIUM ? 8 : 4;
}

// Twice decode's work for a key: not where tiles have half of it, those of bfloat16 numbers, and those of
// AVX2 below `highest`.
int rest_of_decode(const AttentionSpec& spec, const Target& target) {
    const bool wide = target.vector_bits == 512, medium = spec.precision == QUIRE_PRECISION_MEDIUM;
    const bool codes = scale_group(spec.key_format) > 0 || scale_group(spec.value_format) > 0;
    const bool blocks = token_block_info(spec.key_format.type) && token_block_info(spec.value_format.type);
    if (most_few_rows(spec, target) > 0) return 0;
    if (!wide) return blocks || !codes || spec.precision == QUIRE_PRECISION_HIGHEST ? 4 : 0;
    return medium && target.bf16 && !blocks && !has_small_groups(spec) ? 0 : 8;
}

}  // namespace

RestRows most_rest_rows(const AttentionSpec& spec, const Target& target) {
    // A vector of rows by AMX takes less than decode of four (docs/performance.md, "Prefill at `medium`,
    // AMX").
    if (target.amx && spec.precision == QUIRE_PRECISION_MEDIUM) return {};
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
    const int large = spec.precision == QUIRE_PRECISION_HIGHEST ? 576 : 256;
    // Not of blocks of tokens, which would have to be taken apart.
    const bool blocks = token_block_info(spec.key_format.type) != nullptr ||
                        token_block_info(spec.value_format.type) != nullptr;
    const bool quick_tiles = target.amx && spec.precision == QUIRE_PRECISION_MEDIUM && !blocks;
    const bool all = std::max(spec.D, spec.Dv) <= large && most_few_rows(spec, target) == 0 && !quick_tiles &&
                     decodes_most_rows(spec, target, blocks);
    return all && !has_small_groups(spec) ? jit::kMaxDecodeRows : kRowsBesideFew;
}

std::string precision_note(const AttentionSpec& spec, const Target& target) {
    if (spec.precision == QUIRE_PRECISION_HIGHEST) return "";
    const auto side = [&](Side of, const quire_format& format, int dim,
                          jit::Products (*products)(const jit::RowKey&, quire_precision),
                          jit::Products (*of_tiles)(const jit::RowKey&, quire_precision)) {
        std::string high, medium;
        const auto add = [&](jit::Products chosen, const std::string& rows) {
            if (chosen == jit::Products::words || chosen == jit::Products::two_bytes) high += rows + " ";
            if (chosen == jit::Products::bytes || chosen == jit::Products::bfloats) medium += rows + " ";
        };
        const int few = target.jit() ? most_few_rows(spec, target) : 0;
        const int decode = target.jit() ? most_decode_rows(spec, target) : 0;
        const jit::RowKey tile{&target, row_format(format), dim, 0};
        for (int r = spec.group(); r <= std::max(few, decode); r += spec.group())
            add(r <= decode         ? products({&target, format, dim, r}, spec.precision)
                : of == Side::value ? few_value_products(few_key(tile), spec.precision)
                                    : of_tiles(few_key(tile), spec.precision),
                std::to_string(r));
        if (target.jit()) add(of_tiles(tile, spec.precision), "more");
        if (!medium.empty()) medium = "medium for " + medium + "query rows";
        if (!high.empty()) high = "high for " + high + "query rows";
        if (medium.empty() && high.empty()) return std::string("highest");
        return medium + (medium.empty() || high.empty() ? "" : " and ") + high;
    };
    return "precision: keys " + side(Side::key, spec.key_format, spec.D, key_products, key_tile_products) +
           ", values " + side(Side::value, spec.value_format, spec.Dv, value_products, value_tile_products) +
           "; all else runs as highest\n";
}

}  // namespace quire
