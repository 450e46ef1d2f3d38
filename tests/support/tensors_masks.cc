// Masks, slopes, trees and sinks of a case.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/tensors.h"

namespace quire::test {
namespace {

char* mask_element(const Tensors& t, int64_t token, int h, int64_t column) {
    return t.mask_view.rank == 3 ? element(t.mask_view, h, token, column)
                                 : element(t.mask_view, token, column);
}

}  // namespace

// Normal numbers, one in eight -inf; in one row of six all are. Or runs: the sequence has a range and a gap
// in it, a token sees a little more or less than the one before, some see nothing, and some have a number in
// one place.
void Tensors::make_mask_row(int64_t token, int h, int64_t b) {
    const int64_t keys = spec.sequences[size_t(b)].keys, i = token - first_token(b);
    Random random(spec.seed, kMask, spec.id(b), uint64_t(i), uint64_t(h));
    const bool blind = random.below(6) == 0;
    if (!spec.mask_runs) {
        for (int64_t t = 0; t < keys; ++t) {
            const float number = random.normal();
            set_mask(token, h, b, t, blind || random.below(8) == 0 ? -INFINITY : number);
        }
        return;
    }
    Random shared(spec.seed, kMask, spec.id(b));
    const auto below = [](Random* from, int64_t limit) { return from->between(0, limit); };
    const int64_t begin = shared.chance(0.5) ? 0 : below(&shared, keys),
                  end = begin + below(&shared, keys - begin) + i;
    const int64_t gap = below(&shared, keys),
                  gap_end = shared.chance(0.5) ? gap : gap + below(&shared, keys - gap);
    const int64_t special = random.chance(0.2) ? below(&random, keys) : -1;
    const float number = random.normal();
    for (int64_t t = 0; t < keys; ++t) {
        const bool seen = !blind && t >= begin && t < end && !(t >= gap && t < gap_end);
        set_mask(token, h, b, t, t == special ? number : seen ? (t % 7 == 0 ? -0.f : 0.f) : -INFINITY);
    }
}

void Tensors::make_mask() {
    if (spec.mask_rank == 0) return;
    const int heads = spec.mask_rank == 3 && !spec.mask_shared ? spec.H : 1;
    const int64_t padding = spec.spread ? 3 : 0;
    const int64_t shape[] = {heads, spec.n(), spec.all_keys() + padding};
    mask_view =
        quire_tensor_of(nullptr, spec.mask_type, spec.mask_rank, spec.mask_rank == 3 ? shape : shape + 1);
    mask = allocate(&mask_view);
    fill_dead(spec.clean, &mask, spec.mask_type);
    for (int64_t b = 0; b < spec.B(); ++b)
        for (int64_t token = first_token(b); token < first_token(b + 1); ++token)
            for (int h = 0; h < heads; ++h) make_mask_row(token, h, b);
}

void Tensors::make_slopes() {
    if (!spec.has_slopes()) return;
    const int64_t shape[] = {spec.H};
    slopes_view = quire_tensor_of(nullptr, QUIRE_F32, 1, shape);
    if (spec.spread) slopes_view.strides[0] = 3;
    slopes = allocate(&slopes_view);
    fill_dead(spec.clean, &slopes, QUIRE_F32);
    for (int h = 0; h < spec.H; ++h)
        store_number(QUIRE_F32, element(slopes_view, h, 0), 0, h % 4 == 3 ? 0.f : 1.f / float(h + 1));
}

// New keys are seen or not by turns of chance; words past the sequence's own are never read as bits that
// matter.
void Tensors::make_tree() {
    if (!spec.tree) return;
    int64_t most = 1;
    for (const Lengths& s : spec.sequences) most = std::max(most, s.queries);
    const int64_t shape[] = {spec.n(), (most + 63) / 64};
    tree_view = quire_tensor_of(nullptr, QUIRE_INT64, 2, shape);
    tree = allocate(&tree_view);
    for (int64_t b = 0; b < spec.B(); ++b) {
        Random random(spec.seed, kTree, spec.id(b));
        for (int64_t token = first_token(b); token < first_token(b + 1); ++token)
            for (int64_t word = 0; word < shape[1]; ++word) {
                const uint64_t seen = random.bits() | random.bits();
                std::memcpy(element(tree_view, token, word), &seen, sizeof seen);
            }
    }
}

void Tensors::make_sinks() {
    if (!spec.sinks) return;
    const int64_t shape[] = {spec.H};
    sinks_view = quire_tensor_of(nullptr, QUIRE_F32, 1, shape);
    if (spec.spread) sinks_view.strides[0] = 3;
    sinks = allocate(&sinks_view);
    fill_dead(spec.clean, &sinks, QUIRE_F32);
    Random random(spec.seed, kSinks);
    for (int h = 0; h < spec.H; ++h) {
        const float number = random.normal() * 3;
        store_number(QUIRE_F32, element(sinks_view, h, 0), 0,
                     h % 5 == 4 ? -INFINITY : number);  // -inf: as without
    }
}

float Tensors::mask_at(int64_t token, int h, int64_t b, int64_t t) const {
    if (spec.tree) {
        const Lengths& s = spec.sequences[size_t(b)];
        const int64_t j = t - (s.keys - s.queries);
        uint64_t seen = 0;
        if (j >= 0) std::memcpy(&seen, element(tree_view, token, j / 64), sizeof seen);
        if (j >= 0 && !(seen >> (j % 64) & 1)) return -INFINITY;
    }
    if (spec.mask_rank == 0) return 0;
    const char* at = mask_element(*this, token, h, key_starts_[size_t(b)] + t);
    if (spec.mask_type == QUIRE_BOOL) return *at != 0 ? 0.f : -INFINITY;
    const float number = load_number(spec.mask_type, at, 0);
    if (!spec.has_slopes() || number == -INFINITY) return number;
    return load_number(QUIRE_F32, element(slopes_view, h, 0), 0) * number;
}

void Tensors::set_mask(int64_t token, int h, int64_t b, int64_t t, float number) {
    char* at = mask_element(*this, token, h, key_starts_[size_t(b)] + t);
    if (spec.mask_type == QUIRE_BOOL)
        *at = number == -INFINITY ? 0 : char(1 + t % 3);  // anything but 0 is true
    else
        store_number(spec.mask_type, at, 0, number);
}

float Tensors::sink(int h) const { return load_number(QUIRE_F32, element(sinks_view, h, 0), 0); }

}  // namespace quire::test
