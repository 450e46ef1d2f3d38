#include "tests/support/case.h"

#include <algorithm>
#include <ostream>
#include <sstream>
#include <utility>

#include "tests/support/random.h"

namespace quire::test {
namespace {

// Streams of random numbers, apart from those of tensors.cc.
enum Stream : uint64_t { kPositions = 100, kKeyRange };

}  // namespace

int64_t Case::n() const {
    int64_t total = 0;
    for (const Lengths& s : sequences) total += s.queries;
    return total;
}

int64_t Case::all_keys() const {
    int64_t total = 0;
    for (const Lengths& s : sequences) total += s.keys;
    return total;
}

double Case::multiplications() const {
    double pairs = 0;
    for (const Lengths& s : sequences) pairs += double(s.queries) * double(s.keys);
    return pairs * H * (D + Dv);
}

uint64_t Case::id(int64_t b) const {
    const uint64_t given = sequences[size_t(b)].id;
    return given != 0 ? given : uint64_t(b) + 1;
}

int64_t Case::position(int64_t b, int64_t i) const {
    const Lengths& s = sequences[size_t(b)];
    if (positions) return Random(seed, kPositions, id(b)).between(-3, s.keys + 3) + i;
    return causal_corner == 1 ? i : s.keys - s.queries + i;
}

void Case::key_range(int64_t b, int64_t* begin, int64_t* end) const {
    const int64_t T = sequences[size_t(b)].keys;
    Random random(seed, kKeyRange, id(b));
    *begin = key_ranges ? random.between(0, T) : 0;
    *end = key_ranges ? random.between(0, T) : T;
    // Most ranges hold keys.
    if (*end < *begin && random.below(4) != 0) std::swap(*begin, *end);
}

void Case::visible(int64_t b, int64_t i, int64_t* begin, int64_t* end) const {
    const int64_t at = position(b, i);
    key_range(b, begin, end);
    if (alibi || (causal && b >= decoding_batches)) *end = std::min(*end, at + 1);
    if (has_window && window_left >= 0) *begin = std::max(*begin, at - window_left);
    if (has_window && window_right >= 0) *end = std::min(*end, at + window_right + 1);
    *end = std::max(*end, *begin);
}

void Case::fit_to_blocks() {
    const int step = int(row_step());
    if (step == 1) return;
    page_size = (page_size + step - 1) / step * step;
    if (placement == Placement::dense && B() > 1) placement = Placement::offsets;
}

std::string Case::name() const {
    std::ostringstream out;
    out << type_name(type) << " k:" << format_name(key_format) << " v:" << format_name(value_format) << " H"
        << H << " Hk" << Hk << " D" << D << " Dv" << Dv << (value_in_key ? " in-key" : "") << " SxT";
    for (const Lengths& s : sequences)
        out << (&s == sequences.data() ? ":" : ",") << s.queries << "x" << s.keys;
    for (const Lengths& s : sequences)
        if (s.id != 0) out << (&s == sequences.data() ? " ids:" : ",") << s.id;
    const char* places[] = {" dense", " offsets", " pages:"};
    out << places[int(placement)];
    if (placement == Placement::pages) out << page_size;
    out << " layout" << layout << (flush == Flush::end ? "" : " flush:begin") << (spread ? " spread" : "")
        << (unaligned ? " unaligned" : "") << (clean ? " clean" : "");
    if (precision != QUIRE_PRECISION_HIGHEST) out << " precision:" << precision;
    if (scale != 0) out << " scale:" << scale;
    if (causal) out << " causal";
    if (alibi) out << " alibi";
    if (causal_corner != 0) out << " corner:" << causal_corner;
    if (positions) out << " positions";
    if (key_ranges) out << " ranges";
    if (has_window) out << " window:" << window_left << "," << window_right;
    if (soft_cap != 0) out << " cap:" << soft_cap;
    if (mask_rank != 0)
        out << " mask" << mask_rank << (mask_shared ? "shared:" : ":") << type_name(mask_type)
            << (mask_runs ? " runs" : "") << (has_slopes() ? " slopes" : "");
    if (tree) out << " tree";
    if (sinks) out << " sinks";
    if (decoding_batches != 0) out << " decoding:" << decoding_batches;
    if (!lse) out << " no-lse";
    out << " seed" << seed << " order" << order_seed;
    return out.str();
}

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name(); }

quire_format plain_format(quire_type type) { return {type, 0, QUIRE_NONE}; }
quire_format quantised(quire_type type, int group, quire_type scale_type) {
    return {type, group, scale_type};
}

namespace {

template <typename Is>
std::vector<quire_type> types_that(const Is& is) {
    std::vector<quire_type> types;
    size_t count = 0;
    const FormatInfo* table = format_table(&count);
    for (size_t i = 0; i < count; ++i)
        if (is(table[i].type)) types.push_back(table[i].type);
    return types;
}

}  // namespace

std::vector<quire_type> block_types() { return types_that(block_info); }
std::vector<quire_type> token_block_types() { return types_that(token_block_info); }

quire_attention_desc desc_of(const Case& c) {
    quire_attention_desc desc;
    quire_attention_desc_init(&desc);
    desc.num_heads = c.H;
    desc.num_kv_heads = c.Hk;
    desc.head_dim = c.D;
    desc.value_head_dim = c.Dv;
    desc.type = c.type;
    desc.key_format = c.key_format;
    desc.value_format = c.value_format;
    desc.precision = c.precision;
    desc.scale = c.scale;
    desc.is_causal = c.causal;
    desc.is_alibi = c.alibi;
    desc.causal_corner = c.causal_corner;
    desc.has_window = c.has_window;
    desc.window_left = c.window_left;
    desc.window_right = c.window_right;
    desc.logits_soft_cap = c.soft_cap;
    desc.page_size = c.placement == Placement::pages ? c.page_size : 0;
    return desc;
}

}  // namespace quire::test
