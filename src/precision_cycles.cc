#include "src/precision_cycles.h"

#include <algorithm>

#include "jit/args.h"
#include "jit/byte_loader.h"
#include "jit/qk_fours.h"
#include "jit/token_codes.h"
#include "jit/token_keys.h"
#include "jit/weights.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"

namespace quire {
namespace {

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

// So many more for two vectors of codes that are looked up in a table, or have fifth bits.
double more_of_codes(const jit::RowKey& key, double of_table, double of_fifth_bits) {
    const BlockInfo* const block = block_info(key.format.type);
    return !block ? 0 : block->table ? of_table : block->high_bits_at ? of_fifth_bits : 0;
}

}  // namespace

// The operations that jit/qk.cc and jit/pv.cc emit for one key. Codes to f32 lanes: widen (or cut out),
// convert, two more for nibbles, and scale (or the scores, in the end); then one FMA a row.
double float_cycles_of_keys(const jit::RowKey& key) {
    if (jit::turns_keys(key)) return key.vecs() * cycles(*key.target, key.rows, 2) + turning_cycles(key);
    const double widen = more_of_codes(key, 0, 5) + (is_of_nibbles(key.format) ? 3 : 2);
    return key.vecs() * cycles(*key.target, key.rows + !key.one_scale(), widen);
}

// The same, or instead of scaling a weight for each row and group.
double float_cycles_of_values(const jit::RowKey& key) {
    const double widen = more_of_codes(key, 0, 5) + (is_of_nibbles(key.format) ? 3 : 2);
    if (!jit::folds_scales(key)) return key.vecs() * cycles(*key.target, key.rows + 1, widen);
    const double weights = double(key.rows * key.scales_stride()) / key.target->lanes();
    return key.vecs() * cycles(*key.target, key.rows, widen) + cycles(*key.target, weights, weights);
}

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
    const double split = more_of_codes(key, 2, 9) + (is_of_nibbles(key.format) ? 4 : 3);
    const double mixed = scale_group(key.format) < 4 * lanes;
    return chunks * cycles(*key.target, key.rows * 3, split + mixed + key.rows * (addition + 1));
}

namespace {

// A vector of codes, whose chunks are transposed four at a time: for each row a dot product for every vector
// and digit, and for every four keys and run a conversion, a scaling FMA (one for all runs that share a
// scale) and what joins digits, or a factor: one multiplication more for one digit and for three, and two
// other operations for two and for three. Joined runs: for all four two dot products, two shifts with
// an or each, a conversion and an FMA. Weighed words: a product of bytes for each part and one of words, of
// which each is added to another, and for each run a conversion and an FMA.
double cycles_of_fours(jit::RowKey key, jit::Products products) {
    key.products = products;
    const jit::FoursForm form(key);
    const double codes = 3 + 3 * (form.parts - 1) + more_of_codes(key, 2, 9), runs = form.runs() / 4.;
    const double chunks = form.chunks - (form.has_half ? .5 : 0);
    if (form.joins_runs)
        return chunks * cycles(*key.target, key.rows * (form.parts + .75), codes + .5 + key.rows * 1.25);
    if (form.weighs_words)
        return chunks * cycles(*key.target, key.rows * (form.parts + 1 + runs),
                               codes + 2 * runs + key.rows * (form.parts + runs - key.target->vnni));
    const double scaling = form.runs_share_scale ? 1. / form.runs() : 1;
    const double multiplications = scaling + (form.digits == 2 ? 0 : 1), others = form.digits == 1 ? 1 : 3;
    return chunks * cycles(*key.target, key.rows * (form.parts * form.digits + runs * multiplications),
                           codes + runs * (2 + key.rows * others));
}

}  // namespace
double byte_cycles_of_fours(const jit::RowKey& key) { return cycles_of_fours(key, jit::Products::bytes); }
double word_cycles_of_fours(const jit::RowKey& key) { return cycles_of_fours(key, jit::Products::two_bytes); }
double number_cycles_of_fours(const jit::RowKey& key) {
    return cycles_of_fours(key, jit::Products::three_bytes);
}

// A vector of two keys: interleaving, and one dot product a row; and for each pair of keys the weights, as
// many pairs at a time as fit a vector.
double word_cycles_of_values(const jit::RowKey& key) {
    const double vectors = double(key.weight_stride()) / key.target->lanes(), rows = key.rows;
    const double addition = key.target->vnni ? 0 : 1;
    const double interleave = is_of_nibbles(key.format) ? 2.5 + more_of_codes(key, 2, 9) / 2 : 2;
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
    const double codes = key.vecs() * (.75 + more_of_codes(key, 2, 11) / 8);
    return cycles(*key.target, key.vecs() * key.rows * .75 + 3 * weights, codes + 7 * weights);
}

namespace {

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

}  // namespace

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

}  // namespace quire
