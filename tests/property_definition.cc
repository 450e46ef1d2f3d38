// Random problems of quire_attention, quire_append and quire_merge_states against their definitions.
#include <cmath>

#include "tests/support/append.h"
#include "tests/support/check.h"
#include "tests/support/property.h"

namespace quire::test {
namespace {

QUIRE_PROPERTY(PropertyDefinition, Attention, 1000) {
    const Case c = *cases();
    const Way way = *ways();
    Tensors tensors(c);
    hold(accurate(c, expect(tensors), run(tensors, way)));
}

QUIRE_PROPERTY(PropertyDefinition, Append, 500) {
    Draw draw;
    draw.cached = true;
    draw.options = false;
    const Case c = *cases(draw);
    const Way way = *ways();
    Append append(c);
    if (*rc::gen::arbitrary<bool>()) append.spoil();
    append.forget();
    const Append::Bytes expected = append.expected();
    append.run(way);
    hold(append.same(expected));
}

// ---- quire_merge_states ----

// Outputs and lse of n * H heads: normal numbers, and lse from far below to far above, or of nothing.
struct States {
    std::vector<uint8_t> output;
    std::vector<float> lse;
};

States draw_states(quire_type type, int64_t heads, int64_t Dv, uint64_t seed) {
    Random random(seed);
    States s{std::vector<uint8_t>(size_t(heads * Dv * type_bits(type) / 8)), {}};
    for (int64_t i = 0; i < heads * Dv; ++i) store_number(type, s.output.data(), i, random.normal());
    for (int64_t i = 0; i < heads; ++i) {
        const float spread = random.chance(0.3) ? 200.f : 2.f;
        const float lse = random.normal() * spread;
        s.lse.push_back(random.chance(0.2) ? -INFINITY : lse);
    }
    return s;
}

QUIRE_PROPERTY(PropertyDefinition, MergeStates, 500) {
    const auto type = *rc::gen::element(QUIRE_F32, QUIRE_F16, QUIRE_BF16);
    const int64_t n = *rc::gen::inRange<int64_t>(0, 8), H = *rc::gen::inRange<int64_t>(0, 6),
                  Dv = *rc::gen::inRange<int64_t>(1, 641), shape[] = {n, H, Dv};
    const auto seed = *rc::gen::arbitrary<uint64_t>();
    States a = draw_states(type, n * H, Dv, seed), b = draw_states(type, n * H, Dv, seed + 1), to = a;
    const auto view = [&](auto& numbers, quire_type of, int rank) {
        return quire_tensor_of(numbers.data(), of, rank, shape);
    };
    const quire_tensor oa = view(a.output, type, 3), la = view(a.lse, QUIRE_F32, 2),
                       ob = view(b.output, type, 3), lb = view(b.lse, QUIRE_F32, 2),
                       o = view(to.output, type, 3), l = view(to.lse, QUIRE_F32, 2);
    RC_ASSERT(quire_merge_states(nullptr, &oa, &la, &ob, &lb, &o, &l) == QUIRE_OK);
    const double ulp = type == QUIRE_F32 ? 0x1p-21 : type == QUIRE_F16 ? 0x1p-11 : 0x1p-8;
    for (size_t i = 0; i < to.lse.size(); ++i) {
        const double x = double(a.lse[i]), y = double(b.lse[i]), most = std::max(x, y);
        const bool none = std::isinf(most);
        const double wx = none ? 0 : std::exp(x - most), wy = none ? 0 : std::exp(y - most);
        if (none)
            RC_ASSERT(to.lse[i] == -INFINITY);
        else
            RC_ASSERT(std::fabs(double(to.lse[i]) - (most + std::log(wx + wy))) <=
                      0x1p-21 * std::max(1., std::fabs(most)));
        for (int64_t d = int64_t(i) * Dv; d < int64_t(i + 1) * Dv; ++d) {
            const double wanted = none ? 0
                                       : (wx * double(load_number(type, a.output.data(), d)) +
                                          wy * double(load_number(type, b.output.data(), d))) /
                                             (wx + wy);
            const double got = double(load_number(type, to.output.data(), d));
            RC_ASSERT(std::fabs(got - wanted) <= ulp * std::max(0.125, std::fabs(wanted)));
        }
    }
}

}  // namespace
}  // namespace quire::test
