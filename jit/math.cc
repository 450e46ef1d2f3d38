#include "jit/math.h"

namespace quire::jit {
namespace {

// acc = acc * x + c for each c in turn.
void emit_horner(Emitter& e, const Vec& acc, const Vec& x, std::initializer_list<float> coefficients) {
    for (float c : coefficients) e.vfmadd213ps(acc, x, e.splat(c));
}

// Minimax polynomials of 2^x that are 1 at 0, weighted to its relative error: 2e-9 before rounding, 3.6e-6,
// 4.3e-4.
std::vector<float> exp2_coefficients(Exp2 near) {
    switch (near) {
        case Exp2::word: return {0x1.409104p-7f, 0x1.ca9008p-5f, 0x1.ebf1b4p-3f, 0x1.62dfcap-1f, 1.f};
        case Exp2::bfloat: return {0x1.55989ep-5f, 0x1.efadb2p-3f, 0x1.643b8cp-1f, 1.f};
        default:
            return {0x1.41fbbcp-13f,
                    0x1.5f3e52p-10f,
                    0x1.3b2d4cp-7f,
                    0x1.c6aee8p-5f,
                    0x1.ebfbdcp-3f,
                    0x1.62e430p-1f,
                    1.f};
    }
}

}  // namespace

void emit_exp2(Emitter& e, const std::vector<Vec>& x, Exp2 near) {
    const int count = int(x.size());
    const std::vector<Vec> whole = e.vecs("exp2.whole", count), p = e.vecs("exp2.p", count);
    const std::vector<float> coefficients = exp2_coefficients(near);
    const auto each = [&](const auto& step) {
        for (size_t i = 0; i < x.size(); ++i) step(x[i], whole[i], p[i]);
    };
    // The clamp keeps whole + 127 representable; x is the second source, which is what max returns for NaN.
    e.vmovups(whole[0], e.splat(e.lowest_exponent()));
    for (const Vec& v : x) e.vmaxps(v, whole[0], v);
    each([&](const Vec& v, const Vec& n, const Vec&) { e.round_nearest(n, v); });
    each([&](const Vec& v, const Vec& n, const Vec&) { e.vsubps(v, v, n); });  // -0.5..0.5
    for (const Vec& acc : p) e.vmovups(acc, e.splat(coefficients[0]));
    for (size_t i = 1; i < coefficients.size(); ++i)
        each([&](const Vec& v, const Vec&, const Vec& acc) {
            e.vfmadd213ps(acc, v, e.splat(coefficients[i]));
        });
    each([&](const Vec& v, const Vec& n, const Vec& acc) { e.scale_by_power_of_two(v, acc, n); });
    e.free(p);
    e.free(whole);
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
