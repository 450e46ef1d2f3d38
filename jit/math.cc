#include "jit/math.h"

#include <cmath>

#include "src/half.h"

namespace quire::jit {
namespace {

// acc = acc * x + c for each c in turn.
void emit_horner(Emitter& e, const Vec& acc, const Vec& x, std::initializer_list<float> coefficients) {
    for (float c : coefficients) e.vfmadd213ps(acc, x, e.splat(c));
}

// Minimax polynomials of 2^x, 0 <= x < 1, that are 1 at 0, weighted to its relative error: 2e-9 before
// rounding, 8.2e-8, 2.9e-6, 8.6e-5.
std::vector<float> exp2_coefficients(Exp2 near) {
    switch (near) {
        case Exp2::probability:
            return {0x1.e974fap-10f, 0x1.277856p-7f, 0x1.c91ce6p-5f, 0x1.ebdb56p-3f, 0x1.62e4bap-1f, 1.f};
        case Exp2::word: return {0x1.b7f732p-7f, 0x1.abf868p-5f, 0x1.ee245p-3f, 0x1.62d6c6p-1f, 1.f};
        case Exp2::bfloat: return {0x1.3baaa6p-4f, 0x1.d2378ap-3f, 0x1.63e658p-1f, 1.f};
        default:
            return {0x1.c54174p-13f,
                    0x1.46d64ep-10f,
                    0x1.3d0b92p-7f,
                    0x1.c68912p-5f,
                    0x1.ebfd58p-3f,
                    0x1.62e42cp-1f,
                    1.f};
    }
}

// Bits of 2^(i / 32), 16 of them.
std::vector<uint32_t> powers_from(int first) {
    std::vector<uint32_t> words;
    for (int i = first; i < first + 16; ++i) words.push_back(float_bits(float(std::exp2(i / 32.))));
    return words;
}

}  // namespace

void hold_exp2(Emitter& e, Exp2 near, int spare) { e.hold_splats(exp2_coefficients(near), spare); }

void emit_exp2(Emitter& e, const std::vector<Vec>& x, Exp2 near) {
    const int count = int(x.size());
    const std::vector<Vec> spare = e.vecs("exp2.spare", count), p = e.vecs("exp2.p", count);
    const std::vector<float> coefficients = exp2_coefficients(near);
    const std::vector<Emitter::Power> powers = e.split_powers(x, spare);
    for (const Vec& acc : p) e.load_splat(acc, coefficients[0]);
    for (size_t c = 1; c < coefficients.size(); ++c)
        for (size_t i = 0; i < x.size(); ++i) e.multiply_add(p[i], powers[i].part, coefficients[c]);
    for (size_t i = 0; i < x.size(); ++i) e.scale_by_power_of_two(x[i], p[i], powers[i].whole);
    e.free(p);
    e.free(spare);
}

void emit_probability(Emitter& e, const Vec& x) {
    constexpr uint8_t kDown32nds = 5 << 4 | 1;
    constexpr float kWhole32nds = 0x1.8p23f / 32;  // added to a number, leaves it as such, in the lowest bits
    Temp power(e, "exp2.power"), p(e, "exp2.p"), part(e, "exp2.part");
    e.vmovups(power, e.splat(kWhole32nds));
    e.vaddps(power, power, x | e.T_rd_sae);
    e.vmovups(p, e.constant(powers_from(0)));
    e.vpermi2ps(power, p, e.constant(powers_from(16)));
    e.vreduceps(part, x, kDown32nds);
    // 2^part - 1 for part below 1 / 32: 6.5e-8 of 2^part.
    e.load_splat(p, 0x1.f0f3ccp-3f);
    e.multiply_add(p, part, 0x1.62e11ep-1f);
    e.vmulps(p, p, part);
    e.vfmadd213ps(p, power, power);
    e.vscalefps(x, p, x);
}

void emit_exp2(Emitter& e, const Vec& x) { emit_exp2(e, std::vector<Vec>{x}); }

void emit_tanh(Emitter& e, const Vec& x) {
    Temp magnitude(e, "tanh.magnitude"), r(e, "tanh.r"), p(e, "tanh.p");
    // Large: (1 - t) / (1 + t) with t = exp(-2|x|).
    e.bit_and(magnitude, x, e.splat_bits(0x7fffffff));
    e.vmulps(r, magnitude, e.splat(-2.88539008f));  // -2 log2(e)
    emit_exp2(e, r);
    e.vmovups(p, e.splat(1.f));
    e.vsubps(p, p, r);
    e.vaddps(r, r, e.splat(1.f));
    e.vdivps(r, p, r);
    e.bit_and(p, x, e.splat_bits(0x80000000));
    e.bit_or(r, r, p);
    // Small: x + x^3 P(x^2), where the form above would cancel. (Cephes' coefficients.)
    {
        Temp square(e, "tanh.square");
        e.vmulps(square, x, x);
        e.vmovups(p, e.splat(-5.70498872745e-3f));
        emit_horner(e, p, square,
                    {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f});
        e.vmulps(p, p, square);
    }
    e.vfmadd213ps(p, x, x);
    e.select_below(r, magnitude, 0.625f, p);
    e.vmovaps(x, r);
}

}  // namespace quire::jit
