// What QK of keys in fours takes of a query row, and for which formats there is one.
#include <algorithm>

#include "jit/byte_loader.h"
#include "jit/qk_digits.h"
#include "jit/qk_fours.h"

namespace quire::jit {
namespace {

constexpr int kMostOfFactor = 8;  // elements of a query of bytes that share one

// Of 256 bits one digit of nibbles by dot products would be as many operations as two.
bool weighs(const quire_format& format, const Target& target) {
    return !target.vnni || (target.vector_bits == 256 && is_of_nibbles(format));
}

}  // namespace

bool has_fours(const quire_format& format, const Target& target, int digits) {
    if (!has_bytes(format)) return false;
    const bool wide = target.vnni && target.vector_bits == 512;
    if (has_minima(format) && (!wide || (digits == 1 && byte_parts(format) == 2))) return false;
    if (digits == 1 && weighs(format, target)) return byte_parts(format) == 1 || has_small_numbers(format);
    return target.vnni;
}

FoursForm::FoursForm(const RowKey& key)
    : order(byte_order(key.format, key.dim, key.target->lanes())),
      lanes(key.target->lanes()),
      parts(byte_parts(key.format)),
      digits(key.products == Products::bytes       ? 1
             : key.products == Products::two_bytes ? 2
                                                   : 3),
      chunks(int(order.size()) / (parts * 4 * lanes)),
      zero(byte_zero(key.format)),
      small(has_small_numbers(key.format)),
      has_minima(key.has_minima_apart()),
      has_half(half_chunk(key.format, key.dim, lanes) > 0) {
    const int of_dword = 4 * parts;
    run = 4;
    weighs_words = digits == 1 && weighs(key.format, *key.target);
    largest = weighs_words && parts == 1 ? kLargestOfWords : largest_digits(digits);
    const bool spans = digits == 1 && !weighs_words;
    while (scale_group(key.format) % (run * of_dword) != 0 || (spans && run * of_dword > kMostOfFactor))
        run /= 2;
    const bool one_scale = spans && scale_group(key.format) % (4 * of_dword) == 0;
    joins_runs = one_scale && parts == 2 && small;
    runs_share_scale = one_scale && run < 4 && !joins_runs;
    keeps_scales = lanes == 16 && run == 1 && !joins_runs && !runs_share_scale &&
                   4 * key.scales_stride() > lanes && !reads_scales(key);
    twice = is_half(0) && (digits > 1 || key.placement != Placement::listed);
    twice = twice && (has_whole_rows(*this) || spare(key.rows) >= 0);
}

int FoursForm::spare(int rows) const {
    const int codes = 4 + (parts - 1) * (joins_runs || runs_share_scale ? 4 : run);
    const int of_sums = runs_share_scale || joins_runs ? 2 : std::min(digits, 2);
    const int base = digits == 3 || joins_runs;
    const int q = weighs_words ? parts : 1;
    return vecs() - sets(0) * (rows + codes + 1 + has_minima + of_sums) - q - base - has_minima;
}

int FoursForm::rows_a_pass(int rows) const {
    while (spare(rows) < 0) rows = (rows + 1) / 2;
    return rows;
}

bool FoursForm::loads_ahead(int rows) const {
    constexpr int kOfScales = 3;  // registers that keeping scales takes more than a run of products
    return fours() > 1 && rows_a_pass(rows) == rows && (!keeps_scales || spare(rows) >= kOfScales);
}

// Scales of a turn are whole vectors, of four rows each, or of two.
bool makes_scales(const RowKey& key) {
    const BlockInfo* block = block_info(key.format.type);
    if (!block || block->numbers() > 1 || !takes_fours(key)) return false;
    const FoursForm form(key);
    const int groups = key.groups();
    return (groups == 4 || groups == 8) && (has_whole_rows(form) || form.loads_ahead(key.rows));
}

bool reads_scales(const RowKey& key) { return takes_fours(key) && key.has_lists_of_scales(); }

}  // namespace quire::jit
