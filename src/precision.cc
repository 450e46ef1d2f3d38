#include "src/precision.h"

#include "jit/args.h"
#include "jit/word_loader.h"

namespace quire {
namespace {

// Words must do with this share of the vector operations: the count leaves out loads, of which they have
// more.
constexpr double kWorthIt = 0.85;

bool is_of_nibbles(const quire_format& f) {
    return block_info(f.type) ? block_info(f.type)->code_bits == 4 : f.type == QUIRE_INT4;
}

// The operations that jit/qk.cc and jit/pv.cc emit for one key. Codes to f32 lanes: widen, convert, scale,
// and two more for nibbles; then one FMA a row.
double float_operations(const jit::RowKey& key) {
    return key.vecs() * (key.rows + (is_of_nibbles(key.format) ? 4. : 3.));
}

// Two dot products of words, of which one starts the sum.
double dots(const Target& target) { return target.vnni ? 2 : 3; }

}  // namespace

// A chunk of 4 L elements: its words, and for each row dots, a conversion and a scaling FMA.
bool words_pay_for_keys(const jit::RowKey& key) {
    if (!jit::has_words(key.format)) return false;
    const int lanes = key.target->lanes(), chunks = key.query_words() / (4 * lanes);
    const double split = is_of_nibbles(key.format) ? 4 : 3, mixed = scale_group(key.format) < 4 * lanes;
    return chunks * (split + mixed + key.rows * (dots(*key.target) + 2)) < kWorthIt * float_operations(key);
}

// A vector of two keys: interleaving, and one dot product a row; and for each pair of keys the weights, as
// many pairs at a time as fit a vector.
bool words_pay_for_values(const jit::RowKey& key) {
    if (!jit::has_words(key.format)) return false;
    const int lanes = key.target->lanes();
    const double dot = key.target->vnni ? 1 : 2;
    const double interleave = is_of_nibbles(key.format) ? 2.5 : 2;
    const double mixed = scale_group(key.format) % lanes == 0 ? 0 : key.rows;
    const double weights = (4 + 8. * key.rows) * key.weight_stride() / lanes + key.rows;
    return (key.vecs() * (interleave + mixed + key.rows * dot) + weights) / 2 <
           kWorthIt * float_operations(key);
}

std::string precision_note(const AttentionSpec& spec, const Target& target) {
    if (spec.precision == QUIRE_PRECISION_HIGHEST) return "";
    const auto side = [&](const quire_format& format, int dim, bool (*pay)(const jit::RowKey&)) {
        std::string rows;
        for (int r = spec.group(); target.jit() && r <= jit::kMaxDecodeRows; r += spec.group())
            if (pay({&target, format, dim, r})) rows += (rows.empty() ? "" : " ") + std::to_string(r);
        return rows.empty() ? std::string("highest") : "high for " + rows + " query rows";
    };
    return "precision: keys " + side(spec.key_format, spec.D, words_pay_for_keys) + ", values " +
           side(spec.value_format, spec.Dv, words_pay_for_values) + "; all else runs as highest\n";
}

}  // namespace quire
