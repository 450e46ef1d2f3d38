#include "tests/support/factors.h"

#include <algorithm>

namespace quire::test {
namespace {

// quant_group, where the head size is known later: kOdd is the largest odd number below 16 that divides.
constexpr int kOdd = -1, kWholeRow = -2;

struct FormatChoice {
    quire_type type;
    int group;
    quire_type scales;
};
const FormatChoice kFormats[] = {
    {QUIRE_F32, 0, QUIRE_NONE},     {QUIRE_F16, 0, QUIRE_NONE},      {QUIRE_BF16, 0, QUIRE_NONE},
    {QUIRE_INT8, 1, QUIRE_F32},     {QUIRE_INT8, kOdd, QUIRE_F16},   {QUIRE_INT8, 8, QUIRE_F16},
    {QUIRE_INT8, 32, QUIRE_F32},    {QUIRE_INT8, 64, QUIRE_F16},     {QUIRE_INT8, kWholeRow, QUIRE_F32},
    {QUIRE_INT4, 1, QUIRE_F16},     {QUIRE_INT4, kOdd, QUIRE_F32},   {QUIRE_INT4, 8, QUIRE_F32},
    {QUIRE_INT4, 32, QUIRE_F16},    {QUIRE_INT4, 64, QUIRE_F32},     {QUIRE_INT4, kWholeRow, QUIRE_F16},
    {QUIRE_Q8_0, 0, QUIRE_NONE},    {QUIRE_Q4_0, 0, QUIRE_NONE},     {QUIRE_Q4_1, 0, QUIRE_NONE},
    {QUIRE_Q5_0, 0, QUIRE_NONE},    {QUIRE_Q5_1, 0, QUIRE_NONE},     {QUIRE_IQ4_NL, 0, QUIRE_NONE},
    {QUIRE_INT8_B16, 8, QUIRE_F16}, {QUIRE_INT8_B16, 32, QUIRE_F16}, {QUIRE_INT8_B16, kWholeRow, QUIRE_F16},
    {QUIRE_INT4_B16, 8, QUIRE_F16}, {QUIRE_INT4_B16, 32, QUIRE_F16}, {QUIRE_INT4_B16, kWholeRow, QUIRE_F16},
};
constexpr int kFormatCount = int(std::size(kFormats));

struct HeadSizes {
    int D, Dv;
};
const HeadSizes kHeadSizes[] = {{1, 1},     {8, 8},     {40, 40},   {64, 64},   {80, 80},   {96, 96},
                                {112, 112}, {128, 128}, {192, 192}, {256, 256}, {576, 576}, {576, 512},
                                {64, 128},  {192, 128}, {45, 15},   {2, 34}};
const int kRatios[] = {1, 2, 3, 4, 8, 16};

const int64_t kQueries[] = {1, 2, 3, 4, 16, 17, 64, 130};
const int64_t kKeys[] = {1,   2,   15,  16,  17,  31,  33,   63,   64,   65,   127,  128,  129,
                         200, 255, 257, 640, 896, 897, 1023, 1024, 1025, 2049, 4095, 4096, 4097};
const int kPages[] = {1, 3, 16, 128};

template <typename T, size_t N>
constexpr int count(const T (&)[N]) {
    return int(N);
}

quire_format format_of(const FormatChoice& choice) { return {choice.type, choice.group, choice.scales}; }

// The group for this head size; the whole row where the wanted group does not divide.
bool fit_format(quire_format* format, int dim) {
    if (dim % type_size(format->type).elements != 0) return false;
    const bool tokens = token_block_info(format->type) != nullptr;
    if (tokens && dim % 8 != 0) return false;
    if (!is_quantised(*format) && !tokens) return true;
    int& group = format->quant_group;
    if (group == kOdd)
        for (group = 15; dim % group != 0;) group -= 2;
    if (group == kWholeRow || dim % group != 0) group = dim;
    return true;
}

}  // namespace

void add_formats(Cover* cover) {
    cover->factor(kFormatCount, [](Case* c, int i) { c->key_format = format_of(kFormats[i]); });
    cover->factor(kFormatCount, [](Case* c, int i) { c->value_format = format_of(kFormats[i]); });
    cover->factor(4, [](Case* c, int i) { c->type = i < 2 ? QUIRE_F32 : i == 2 ? QUIRE_F16 : QUIRE_BF16; });
}

void add_head_sizes(Cover* cover) {
    cover->factor(count(kHeadSizes), [](Case* c, int i) {
        c->D = kHeadSizes[i].D;
        c->Dv = kHeadSizes[i].Dv;
    });
    cover->factor(count(kRatios), [](Case* c, int i) {
        c->H = kRatios[i];
        c->Hk = 1;
    });
    cover->factor(3, [](Case* c, int i) {
        c->Hk = i + 1;
        c->H *= c->Hk;
    });
}

void add_lengths(Cover* cover) {
    cover->factor(count(kQueries), [](Case* c, int i) { c->sequences = {{kQueries[i], 0}}; });
    cover->factor(count(kKeys), [](Case* c, int i) { c->sequences[0].keys = kKeys[i]; });
    cover->factor(6, [](Case* c, int i) {
        const Lengths main = c->sequences[0];
        if (i == 1) c->sequences = {{1, 5}, main, {2, 1}};
        if (i == 2) c->sequences = {{0, 20}, main, {3, 0}};  // no queries; no keys
        if (i == 3) c->sequences = {{7, 3}, main};           // more queries than keys
        if (i == 4) c->sequences = {main, {20, 20}, {1, 130}};
    });
}

void add_layouts(Cover* cover) {
    cover->factor(6, [](Case* c, int i) {
        c->placement = i == 0 ? Placement::dense : i == 1 ? Placement::offsets : Placement::pages;
        if (i >= 2) c->page_size = kPages[i - 2];
    });
    cover->factor(kWholePages + 1, [](Case* c, int i) { c->layout = i; });
    cover->factor(2, [](Case* c, int i) { c->flush = i == 0 ? Flush::end : Flush::begin; });
    cover->factor(3, [](Case* c, int i) {
        c->spread = i == 1;
        c->unaligned = i == 2;
    });
}

void add_options(Cover* cover) {
    cover->factor(3, [](Case* c, int i) { c->causal = i > 0; });
    cover->factor(3, [](Case* c, int i) { c->alibi = i == 1; });
    cover->factor(4, [](Case* c, int i) {
        c->causal_corner = i == 1;
        c->positions = i == 2;
    });
    cover->factor(3, [](Case* c, int i) { c->key_ranges = i == 1; });
    cover->factor(8, [](Case* c, int i) {
        const int left[] = {-1, -1, 0, 5, 200, -1, 70, 2000}, right[] = {-1, -1, 0, -1, 3, 2, 64, 0};
        c->has_window = i > 0;
        c->window_left = left[i];
        c->window_right = right[i];
    });
    cover->factor(4, [](Case* c, int i) { c->soft_cap = i < 2 ? 0.f : i == 2 ? 0.7f : 20.f; });
    cover->factor(8, [](Case* c, int i) {
        const quire_type types[] = {QUIRE_F32, QUIRE_F16, QUIRE_BF16, QUIRE_BOOL};
        c->mask_rank = i < 3 ? 0 : i < 5 ? 2 : 3;
        c->mask_shared = i == 6;
        c->mask_type = types[i % 4];
    });
    cover->factor(3, [](Case* c, int i) { c->mask_runs = i > 0; });
    cover->factor(3, [](Case* c, int i) { c->mask_slopes = i == 1; });
    cover->factor(4, [](Case* c, int i) { c->tree = i == 1; });
    cover->factor(2, [](Case* c, int i) { c->sinks = i == 1; });
    cover->factor(3, [](Case* c, int i) { c->decoding_batches = i; });
    cover->factor(4, [](Case* c, int i) { c->lse = i != 3; });
    cover->factor(3, [](Case* c, int i) { c->scale = i == 0 ? 0.f : i == 1 ? 0.3f : -0.05f; });
}

bool fit(Case* c, double most_multiplications) {
    c->fit_to_blocks();
    return fit_format(&c->key_format, c->D) && fit_format(&c->value_format, c->Dv) &&
           c->decoding_batches <= c->B() && c->multiplications() <= most_multiplications;
}

}  // namespace quire::test
