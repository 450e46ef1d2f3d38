// The emitter's arithmetic that the tiers spell differently, within lanes and across them.
#include "jit/emitter.h"

namespace quire::jit {
namespace {

// Predicates of vcmpps.
constexpr int kEqual = 0, kLess = 1, kNotEqual = 4, kOrdered = 7;

}  // namespace

void Emitter::zero(const Vec& v) {
    const Xbyak::Xmm x(v.getIdx());  // clears the whole register
    is_512() ? vpxord(v, v, v) : vxorps(x, x, x);
}

void Emitter::bit_and(const Vec& d, const Vec& a, const Xbyak::Operand& b) {
    is_512() ? vpandd(d, a, b) : vpand(d, a, b);
}

void Emitter::bit_xor(const Vec& d, const Vec& a, const Xbyak::Operand& b) {
    is_512() ? vpxord(d, a, b) : vpxor(d, a, b);
}

void Emitter::bit_or(const Vec& d, const Vec& a, const Xbyak::Operand& b) {
    is_512() ? vpord(d, a, b) : vpor(d, a, b);
}

void Emitter::select_bits(const Vec& d, uint32_t bits, const Vec& a) {
    constexpr int kSecondWhereThird = 0xd8;
    vpternlogd(d, a, splat_bits(bits), kSecondWhereThird);
}

void Emitter::multiply_by_scalar(const Vec& v, const RegExp& at) {
    if (is_512()) return vmulps(v, v, ptr_b[at]);
    Temp factor(*this, "scalar");
    broadcast(factor, ptr[at]);
    vmulps(v, v, factor);
}

void Emitter::add_scalar(const Vec& v, const RegExp& at) {
    if (is_512()) return vaddps(v, v, ptr_b[at]);
    Temp scalar(*this, "scalar");
    broadcast(scalar, ptr[at]);
    vaddps(v, v, scalar);
}

namespace {
const Xbyak::Opmask kUpperHalf(7);
}

// A blend with a broadcast from memory takes any pipe; an insertion, or a broadcast with a mask, a shuffle's.
void Emitter::broadcast_halves(const Vec& v, const RegExp& low, const RegExp& high, bool same) {
    broadcast(v, ptr[low]);
    if (same) return;
    if (is_512()) return vblendmps(v | kUpperHalf, v, ptr_b[high]);
    Temp upper(*this, "upper half");
    const Xbyak::Ymm y((*upper).getIdx());
    broadcast(y, ptr[high]);
    vinsertf128(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), Xbyak::Xmm(y.getIdx()), 1);
}

void Emitter::hold_upper_half() {
    holds_upper_half_ = true;
    if (!is_512()) return;
    mov(eax, 0xff00);
    kmovw(kUpperHalf, eax);
}

std::vector<Emitter::Power> Emitter::split_powers(const std::vector<Vec>& x, const std::vector<Vec>& spare) {
    constexpr uint8_t kDown = 1;
    std::vector<Power> powers;
    if (is_512()) {  // scalef takes the whole of x
        for (size_t i = 0; i < x.size(); ++i) vreduceps(spare[i], x[i], kDown);
        for (size_t i = 0; i < x.size(); ++i) powers.push_back({spare[i], x[i]});
        return powers;
    }
    // The clamp keeps whole + 127 representable, and makes 2^whole 0 below; x is the second source, which is
    // what max returns for NaN.
    vmovups(spare[0], splat(-127.f));
    for (const Vec& v : x) vmaxps(v, spare[0], v);
    for (size_t i = 0; i < x.size(); ++i) vroundps(spare[i], x[i], kDown);
    for (size_t i = 0; i < x.size(); ++i) vsubps(x[i], x[i], spare[i]);
    for (size_t i = 0; i < x.size(); ++i) powers.push_back({x[i], spare[i]});
    return powers;
}

void Emitter::scale_by_power_of_two(const Vec& x, const Vec& p, const Vec& whole) {
    if (is_512()) return vscalefps(x, p, whole);
    vcvtps2dq(whole, whole);
    vpaddd(whole, whole, splat_bits(127));
    vpslld(whole, whole, 23);
    vmulps(x, p, whole);
}

void Emitter::keep_in_range(const Vec& v, const Vec& index, const Xbyak::Operand& begin,
                            const Xbyak::Operand& end, const Xbyak::Operand& otherwise) {
    Temp bound(*this, "range.bound");
    vmovups(bound, end);
    if (is_512()) {
        vpcmpgtd(k2, bound, index);
        vmovups(bound, begin);
        vpcmpgtd(k3, bound, index);
        kandnq(k2, k3, k2);
        vmovups(bound, otherwise);
        vmovaps(*bound | k2, v);
        vmovaps(v, bound);
    } else {
        Temp before(*this, "range.before");
        vpcmpgtd(bound, bound, index);
        vmovups(before, begin);
        vpcmpgtd(before, before, index);
        vpandn(bound, before, bound);
        vmovups(before, otherwise);
        vblendvps(v, before, v, bound);
    }
}

void Emitter::change_unless_equal(const Vec& v, const Xbyak::Operand& value,
                                  const std::function<void(const Vec& d, const Vec& v)>& change) {
    if (is_512()) {
        vcmpps(k2, v, value, kNotEqual);
        change(v | k2, v);
    } else {
        Temp equal(*this, "equal"), changed(*this, "changed");
        vcmpps(equal, v, value, kEqual);
        vmovaps(changed, v);
        change(changed, changed);
        vblendvps(v, changed, v, equal);
    }
}

void Emitter::inf_to_nan(const Vec& v) { vfmadd132ps(v, v, splat(0.f)); }  // v * 0 + v

void Emitter::zero_nan(const Vec& v) {
    if (is_512()) {
        vcmpps(k2, v, v, kOrdered);
        vmovaps(v | k2 | T_z, v);
    } else {
        Temp number(*this, "nan.ordered");
        vcmpps(number, v, v, kOrdered);
        vandps(v, v, number);
    }
}

void Emitter::select_below(const Vec& d, const Vec& magnitude, float bound, const Vec& a) {
    if (is_512()) {
        vcmpps(k2, magnitude, splat(bound), kLess);
        vmovaps(d | k2, a);
    } else {
        Temp below(*this, "below");
        vcmpps(below, magnitude, splat(bound), kLess);
        vblendvps(d, d, a, below);
    }
}

void Emitter::round_to(quire_type type, const Vec& v) {
    if (type == QUIRE_F16) {
        vcvtps2ph(half_of(v), v, 0);
        halves_to_floats(v);
    } else if (type == QUIRE_BF16) {
        round_bits_to_bf16(v);
        bit_and(v, v, splat_bits(0xffff0000));
    }
}

void Emitter::store_half(const RegExp& at, const Vec& v, int half) {
    if (half == 0)
        vmovups(ptr[at], Xbyak::Ymm(v.getIdx()));
    else
        vextractf64x4(ptr[at], Xbyak::Zmm(v.getIdx()), 1);
}

void Emitter::store_quarter(const RegExp& at, const Vec& v) { vmovups(ptr[at], Xbyak::Xmm(v.getIdx())); }

// ---- across lanes ----

void Emitter::swap_lanes(const Vec& d, const Vec& s, int distance) {
    const Xbyak::Ymm y(d.getIdx());
    const Xbyak::Zmm z(d.getIdx());
    switch (distance) {
        case 1: return vpermilps(d, s, 0xb1);
        case 2: return vpermilps(d, s, 0x4e);
        case 4:
            return is_512() ? vshuff32x4(z, Xbyak::Zmm(s.getIdx()), s, 0xb1)
                            : vperm2f128(y, Xbyak::Ymm(s.getIdx()), s, 0x01);
        default: return vshuff32x4(z, Xbyak::Zmm(s.getIdx()), s, 0x4e);
    }
}

void Emitter::fold_step(Fold op, const Xbyak::Xmm& v, const Xbyak::Xmm& moved) {
    op == Fold::sum ? vaddps(v, v, moved) : vmaxps(v, v, moved);
}

void Emitter::fold(Fold op, const Vec& v) {
    Temp moved(*this, "fold");
    if (is_512()) {
        const Xbyak::Zmm z(v.getIdx()), moved_z((*moved).getIdx());
        vshuff32x4(moved_z, z, z, 0x4e);
        fold_step(op, v, moved);
        vshuff32x4(moved_z, z, z, 0xb1);
    } else {
        vperm2f128(Xbyak::Ymm((*moved).getIdx()), Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), 0x01);
    }
    fold_step(op, v, moved);
    vshufps(moved, v, v, 0x4e);
    fold_step(op, v, moved);
    vshufps(moved, v, v, 0xb1);
    fold_step(op, v, moved);
}

void Emitter::fold_to_first(Fold op, const Vec& v) {
    Temp moved(*this, "fold");
    const Xbyak::Xmm x(v.getIdx()), moved_x((*moved).getIdx());
    const Xbyak::Ymm y(v.getIdx()), moved_y((*moved).getIdx());
    if (is_512()) {
        vextractf64x4(moved_y, Xbyak::Zmm(v.getIdx()), 1);
        fold_step(op, y, moved_y);
        vextractf32x4(moved_x, y, 1);
    } else {
        vextractf128(moved_x, y, 1);
    }
    fold_step(op, x, moved_x);
    vshufps(moved_x, x, x, 0x4e);
    fold_step(op, x, moved_x);
    vshufps(moved_x, x, x, 0xb1);
    fold_step(op, x, moved_x);
}

// zmm -> its ymm: upper half added to the lower.
void Emitter::add_halves(const Vec& v) {
    Temp upper(*this, "upper");
    const Xbyak::Ymm low(v.getIdx()), high((*upper).getIdx());
    vextractf64x4(high, Xbyak::Zmm(v.getIdx()), 1);
    vaddps(low, low, high);
}

// (vhaddps costs as much and cannot name registers above 15.)
void Emitter::fold_quarters(const Xbyak::Xmm* v, const FoldInto& into) {
    Temp upper(*this, "sum.upper");
    const Xbyak::Xmm moved(v[0].getKind(), (*upper).getIdx());
    for (int i : {0, 2}) {  // {a0+a2, b0+b2, a1+a3, b1+b3}
        vunpckhps(moved, v[i], v[i + 1]);
        vunpcklps(v[i], v[i], v[i + 1]);
        into(v[i], moved);
    }
    vunpckhpd(moved, v[0], v[2]);
    vunpcklpd(v[0], v[0], v[2]);
    into(v[0], moved);
}
void Emitter::sum_quarters(const Xbyak::Xmm* v) {
    fold_quarters(v, [&](const Xbyak::Xmm& to, const Xbyak::Xmm& from) { vaddps(to, to, from); });
}

void Emitter::sum_four(const Vec& d, Vec a, Vec b, Vec c, Vec e) {
    if (is_512())
        for (const Vec& v : {a, b, c, e}) add_halves(v);
    const auto y = [](const Vec& v) { return Xbyak::Ymm(v.getIdx()); };
    const Xbyak::Xmm list[] = {y(a), y(b), y(c), y(e)};
    sum_quarters(list);
    Temp upper(*this, "sum.upper");
    const Xbyak::Xmm high((*upper).getIdx()), low(a.getIdx());
    is_512() ? vextractf32x4(high, y(a), 1) : vextractf128(high, y(a), 1);
    vaddps(Xbyak::Xmm(d.getIdx()), low, high);
}

void Emitter::sum_eight(const Vec* v) {
    if (!is_512()) {
        sum_four(v[0], v[0], v[1], v[2], v[3]);
        return sum_four(v[4], v[4], v[5], v[6], v[7]);
    }
    Temp moved(*this, "sum.moved");
    const auto z = [](const Vec& r) { return Xbyak::Zmm(r.getIdx()); };
    for (int i = 0; i < 4; ++i) {  // {halves of v[i] added, halves of v[i + 4] added}
        vshuff64x2(z(moved), z(v[i]), z(v[i + 4]), 0xee);
        vshuff64x2(z(v[i]), z(v[i]), z(v[i + 4]), 0x44);
        vaddps(v[i], v[i], moved);
    }
    const Xbyak::Xmm list[] = {z(v[0]), z(v[1]), z(v[2]), z(v[3])};
    sum_quarters(list);
    vshuff64x2(z(moved), z(v[0]), z(v[0]), 0xb1);
    vaddps(v[0], v[0], moved);
    vextractf32x4(Xbyak::Xmm(v[4].getIdx()), z(v[0]), 2);
}

void Emitter::sum_eight(const Vec& d, const RegExp& at) {
    Temp b(*this, "sum.b"), c(*this, "sum.c"), e(*this, "sum.e"), upper(*this, "sum.upper");
    const Vec list[] = {d, *b, *c, *e};
    for (int i = 0; i < 4; ++i) {  // {halves of vector i added, halves of vector i + 4 added}
        const RegExp low = at + i * vec_bytes(), high = at + (i + 4) * vec_bytes();
        vmovups(Xbyak::Xmm(list[i].getIdx()), ptr[low]);
        vinsertf128(Xbyak::Ymm(list[i].getIdx()), Xbyak::Ymm(list[i].getIdx()), ptr[high], 1);
        vmovups(Xbyak::Xmm((*upper).getIdx()), ptr[low + vec_bytes() / 2]);
        vinsertf128(Xbyak::Ymm((*upper).getIdx()), Xbyak::Ymm((*upper).getIdx()), ptr[high + vec_bytes() / 2],
                    1);
        vaddps(list[i], list[i], upper);
    }
    sum_quarters(list);
}

void Emitter::add_quarters(const std::vector<Vec>& v) {
    Temp moved(*this, "sum.moved");
    if (!is_512()) {
        const Xbyak::Xmm low(v[0].getIdx()), high((*moved).getIdx());
        vextractf128(high, Xbyak::Ymm(v[0].getIdx()), 1);
        return vaddps(low, low, high);
    }
    if (v.size() > 1) add_halves(v[0], v[1]);
    const Xbyak::Zmm a(v[0].getIdx()), m((*moved).getIdx());
    vshuff64x2(m, a, a, 0xb1);
    vaddps(a, a, m);
    vshuff64x2(a, a, a, 0x08);
}

void Emitter::add_quarters(const std::vector<Vec>& a, const std::vector<Vec>& b) {
    Temp moved(*this, "sum.moved");
    const Xbyak::Zmm first(a[0].getIdx()), second(b[0].getIdx()), m((*moved).getIdx());
    for (const std::vector<Vec>* v : {&a, &b}) {
        if (v->size() == 1) continue;
        const Xbyak::Zmm to((*v)[0].getIdx()), other((*v)[1].getIdx());
        vshuff64x2(m, to, other, 0x4e);
        vblendmps(to | kUpperHalf, to, other);
        vaddps(to, to, m);
    }
    vshuff64x2(m, first, second, 0xdd);
    vshuff64x2(first, first, second, 0x88);
    vaddps(first, first, m);
}

void Emitter::add_halves(const Vec& a, const Vec& b) {
    Temp moved(*this, "sum.moved");
    const Xbyak::Zmm to(a.getIdx()), other(b.getIdx()), m((*moved).getIdx());
    vshuff64x2(m, to, other, 0xee);
    vshuff64x2(to, to, other, 0x44);
    vaddps(to, to, m);
}

void Emitter::transpose_dwords(const std::vector<Vec>& v) {
    Temp low(*this, "low"), high(*this, "high");
    const Vec &a = v[0], &b = v[1], &c = v[2], &d = v[3], &l = low, &h = high;
    vpunpckldq(l, a, b);
    vpunpckhdq(h, a, b);
    vpunpckldq(a, c, d);
    vpunpckhdq(c, c, d);
    vpunpckhqdq(b, l, a);
    vpunpcklqdq(a, l, a);
    vpunpckhqdq(d, h, c);
    vpunpcklqdq(c, h, c);
}

void Emitter::transpose_quarters(const std::vector<Vec>& v) {
    Temp first(*this, "first"), second(*this, "second");
    const Vec &f = first, &s = second;
    if (!is_512()) {
        const auto y = [](const Vec& r) { return Xbyak::Ymm(r.getIdx()); };
        vperm2f128(y(f), y(v[0]), y(v[1]), 0x31);
        vperm2f128(y(v[0]), y(v[0]), y(v[1]), 0x20);
        return vmovaps(v[1], f);
    }
    const auto z = [](const Vec& r) { return Xbyak::Zmm(r.getIdx()); };
    const auto even = [&](const Vec& d, const Vec& a, const Vec& b) { vshuff32x4(z(d), z(a), z(b), 0x88); };
    const auto odd = [&](const Vec& d, const Vec& a, const Vec& b) { vshuff32x4(z(d), z(a), z(b), 0xdd); };
    even(f, v[0], v[1]);
    odd(s, v[0], v[1]);
    odd(v[1], v[2], v[3]);
    even(v[2], v[2], v[3]);
    even(v[0], f, v[2]);
    odd(v[2], f, v[2]);
    odd(v[3], s, v[1]);
    even(v[1], s, v[1]);
}

void Emitter::transpose(const std::vector<Vec>& v) {
    const int quarters = lanes() / 4;
    const auto every = [&](int from, int step, int count) {
        std::vector<Vec> some;
        for (int i = 0; i < count; ++i) some.push_back(v[size_t(from + i * step)]);
        return some;
    };
    for (int i = 0; i < 4; ++i) transpose_quarters(every(i, 4, quarters));
    for (int q = 0; q < quarters; ++q) transpose_dwords(every(4 * q, 1, 4));
}

}  // namespace quire::jit
