// The emitter's 16-bit words: bytes widened to them, and dot products that add pairs of them into int32
// lanes; and bfloat16 numbers, whose pairs are added into f32 lanes.
#include "jit/emitter.h"

namespace quire::jit {
namespace {

constexpr int kFirstOrBoth = 0xf8;  // a | (b & c), of vpternlogd

}  // namespace

void Emitter::load_words_in_order(const Vec& v, const RegExp& at, const std::vector<int>& index, int count) {
    const Xbyak::Zmm wide(v.getIdx());
    const Xbyak::Ymm half(v.getIdx());
    std::vector<uint32_t> words(size_t(lanes()), 0);
    for (size_t i = 0; i < index.size(); ++i) words[i / 2] |= uint32_t(index[i]) << (i % 2 * 16);
    vmovups(v, constant(words));
    if (count == 16) return vpermw(half, half, ptr[at]);
    if (count == 32) return vpermw(wide, wide, ptr[at]);
    Temp numbers(*this, "words"), others(*this, "words behind them");
    const Xbyak::Zmm first((*numbers).getIdx()), last((*others).getIdx());
    const int left = count % 32;
    if (left > 0) {
        set_mask(k1, left);
        vmovdqu16((count > 32 ? last : first) | k1 | T_z, ptr[at + count / 32 * 64]);
    }
    if (count < 32) return vpermw(wide, wide, first);
    vmovups(first, ptr[at]);
    left > 0 ? vpermi2w(wide, first, last) : vpermi2w(wide, first, ptr[at + 64]);
}

void Emitter::load_raw(const Vec& v, const RegExp& at, int n) {
    if (n == vec_bytes()) return vmovups(v, ptr[at]);
    if (is_512()) {
        set_mask(k1, n);
        return vmovdqu8(v | k1 | T_z, ptr[at]);
    }
    if (n <= 16) return load_bytes(v, at, n);
    Temp rest(*this, "raw.rest");
    load_bytes(rest, at + 16, n - 16);
    vmovdqu(Xbyak::Xmm(v.getIdx()), ptr[at]);
    vinserti128(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), Xbyak::Xmm((*rest).getIdx()), 1);
}

void Emitter::load_raw(const Vec& v, const RegExp& low, const RegExp& high, int n) {
    const Xbyak::Zmm z(v.getIdx());
    if (n == 32) {
        vmovups(Xbyak::Ymm(v.getIdx()), ptr[low]);
        return vinserti64x4(z, z, ptr[high], 1);
    }
    vmovups(Xbyak::Xmm(v.getIdx()), ptr[low]);
    vinserti32x4(z, z, ptr[high], 2);
}

void Emitter::load_quarters(const Vec& v, const std::vector<RegExp>& at) {
    const Xbyak::Xmm x(v.getIdx());
    const Xbyak::Ymm y(v.getIdx());
    vmovups(x, ptr[at[0]]);
    for (size_t i = 1; i < at.size(); ++i) {
        if (is_512())
            vinserti32x4(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(v.getIdx()), ptr[at[i]], uint8_t(i));
        else
            vinserti128(y, y, ptr[at[i]], uint8_t(i));
    }
}

void Emitter::broadcast_quarter(const Vec& v, const RegExp& at) {
    is_512() ? vbroadcastf32x4(Xbyak::Zmm(v.getIdx()), ptr[at])
             : vbroadcastf128(Xbyak::Ymm(v.getIdx()), ptr[at]);
}

void Emitter::broadcast_dwords(const Vec& v, const RegExp& first, const RegExp& second) {
    const Xbyak::Xmm x(v.getIdx());
    vmovd(x, ptr[first]);
    vpinsrd(x, x, ptr[second], 1);
    vpbroadcastq(v, x);
}

void Emitter::load_words(const Vec& v, const RegExp& at, int n) {
    if (n == 2 * lanes()) return vpmovsxbw(v, ptr[at]);
    load_bytes(v, at, n);
    vpmovsxbw(v, half_of(v));
}

void Emitter::load_words(const Vec& v, const RegExp& low, const RegExp& high) {
    const Xbyak::Ymm y(v.getIdx());
    vmovups(Xbyak::Xmm(v.getIdx()), ptr[low]);
    vinserti32x4(y, y, ptr[high], 1);
    vpmovsxbw(v, y);
}

void Emitter::load_byte_pairs(const Vec& v, const RegExp& first, const RegExp& second, int n) {
    Temp other(*this, "pairs.other");
    const Xbyak::Xmm a(v.getIdx()), b((*other).getIdx());
    load_bytes(v, first, n);
    load_bytes(other, second, n);
    if (is_512() && n > 8) {
        Temp upper(*this, "pairs.upper");
        const Xbyak::Xmm high((*upper).getIdx());
        vpunpckhbw(high, a, b);
        vpunpcklbw(a, a, b);
        vinserti32x4(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), high, 1);
    } else {
        vpunpcklbw(a, a, b);
    }
}

void Emitter::load_word_pairs(const Vec& v, const RegExp& first, const RegExp& second, int n) {
    load_byte_pairs(v, first, second, n);
    vpmovsxbw(v, half_of(v));
}

void Emitter::words_of(const std::vector<Vec>& v) {
    const Xbyak::Ymm y(v[0].getIdx());
    if (is_512()) return vpmovdw(y, v[0]);
    vpackssdw(y, y, v[1]);
    vpermq(y, y, 0xd8);
}

void Emitter::store_words(const RegExp& at, const std::vector<Vec>& v) {
    if (is_512()) return vpmovdw(ptr[at], v[0]);
    words_of(v);
    vmovups(ptr[at], Xbyak::Ymm(v[0].getIdx()));
}

void Emitter::load_word_pairs(const Vec& a, const Vec& b, const RegExp& first, const RegExp& second, int n) {
    Temp other(*this, "pairs.other");
    load_words(a, first, n);
    load_words(other, second, n);
    vpunpckhwd(b, a, other);
    vpunpcklwd(a, a, other);
}

int Emitter::pair_byte(int which, int lane) { return lane / 4 * 8 + which * 4 + lane % 4; }

void Emitter::restore_pairs(const Vec& a, const Vec& b) {
    if (is_512()) return interleave(a, b, 4);
    Temp low(*this, "pairs.low");
    const Xbyak::Ymm x(a.getIdx()), y(b.getIdx()), z((*low).getIdx());
    vperm2f128(z, x, y, 0x20);
    vperm2f128(y, x, y, 0x31);
    vmovaps(x, z);
}

void Emitter::dot_words(const Vec& acc, const Vec& a, const Xbyak::Operand& b) {
    if (target_.vnni) return vpdpwssd(acc, a, b, is_512() ? Xbyak::EvexEncoding : Xbyak::VexEncoding);
    Temp products(*this, "dot.products");
    vpmaddwd(products, a, b);
    vpaddd(acc, acc, products);
}

void Emitter::multiply_bytes(const Vec& d, const std::vector<Vec>& a, const RegExp& b) {
    vpmaddubsw(d, a[0], ptr[b]);
    for (size_t i = 1; i < a.size(); ++i) {
        Temp more(*this, "dot.more");
        vpmaddubsw(more, a[i], ptr[b + int(i) * vec_bytes()]);
        vpaddw(d, d, more);
    }
}

void Emitter::dot_bytes(const Vec& acc, const Vec& a, const Xbyak::Operand& b) {
    vpdpbusd(acc, a, b, is_512() ? Xbyak::EvexEncoding : Xbyak::VexEncoding);
}

const Vec& Emitter::sum_of_digits(const Vec* digits, int count) {
    const Vec& number = digits[count - 1];
    vcvtdq2ps(number, number);
    for (int i = count - 2; i >= 0; --i) {
        vcvtdq2ps(digits[i], digits[i]);
        vfmadd132ps(number, digits[i], splat(256.f));
    }
    return number;
}

void Emitter::join_words(const Xbyak::Xmm& d, const Xbyak::Xmm& low, const Xbyak::Xmm& high) {
    vpslld(high, high, 16);
    if (!is_512()) return vpblendw(d, high, low, 0x55);
    vpternlogd(high, low, splat_bits(0xffff), kFirstOrBoth);
    vmovups(d, high);
}

void Emitter::join_words(const Vec& d, const Vec& low, const Vec& high, const Vec& mask) {
    if (!is_512()) return join_words(d, low, high);
    vpslld(high, high, 16);
    vpternlogd(high, low, mask, kFirstOrBoth);
    vmovaps(d, high);
}

void Emitter::interleave_bytes(const Vec& a, const Vec& b) {
    Temp high(*this, "interleave.high");
    vpunpckhbw(high, a, b);
    vpunpcklbw(a, a, b);
    vmovaps(b, high);
}

void Emitter::transpose_bytes(const std::vector<Vec>& v) {
    Temp first(*this, "transpose.first"), second(*this, "transpose.second");
    const Vec &a = v[0], &b = v[1], &c = v[2], &d = v[3];
    vpunpcklbw(first, a, b);
    vpunpckhbw(second, a, b);
    vpunpcklbw(b, c, d);
    vpunpckhbw(d, c, d);
    vpunpcklwd(a, first, b);
    vpunpckhwd(b, first, b);
    vpunpcklwd(c, second, d);
    vpunpckhwd(d, second, d);
}

void Emitter::raise_words(const Vec& v, const Vec& low) {
    vpslld(v, v, 16);
    bit_or(v, v, low);
}

void Emitter::join_bfloats(const Vec& d, const Vec& low, const Vec& high) { vcvtne2ps2bf16(d, high, low); }

void Emitter::pair_bfloats(const Vec& d, const Vec& low, const Vec& high) {
    std::vector<uint32_t> pairs;
    for (int i = 0; i < lanes(); ++i) pairs.push_back(uint32_t(lanes() + i) << 16 | uint32_t(i));
    join_bfloats(d, low, high);
    Temp order(*this, "pairs.order");
    vmovups(order, constant(pairs));
    vpermw(d, order, d);
}

void Emitter::dot_bfloats(const Vec& acc, const Vec& a, const Xbyak::Operand& b) { vdpbf16ps(acc, a, b); }

void Emitter::load_even_odd(const Vec& even, const Vec& odd, const RegExp& at, int run) {
    if (run == lanes()) {
        broadcast(even, ptr[at]);
        return broadcast(odd, ptr[at + 4]);
    }
    if (run == 2) {
        vmovsldup(even, ptr[at]);
        return vmovshdup(odd, ptr[at]);
    }
    std::vector<uint32_t> order, next;
    for (int i = 0; i < lanes(); ++i) {
        order.push_back(uint32_t(i / run * 2));
        next.push_back(order.back() + 1);
    }
    if (is_512()) {
        const Xbyak::Zmm e(even.getIdx()), o(odd.getIdx());
        vmovups(even, constant(order));
        vmovups(odd, constant(next));
        vpermps(e, e, ptr[at]);
        return vpermps(o, o, ptr[at]);
    }
    const Xbyak::Ymm y(even.getIdx());  // all of them in both halves
    vbroadcastf128(y, ptr[at]);
    vpermilps(odd, even, constant(next));
    vpermilps(even, even, constant(order));
}

// Lanes of zmm a and b, 16 on those of b: a = those of `first`, b = those of `second`.
void Emitter::permute_both(const Vec& a, const Vec& b, const std::vector<uint32_t>& first,
                           const std::vector<uint32_t>& second) {
    Temp low(*this, "both.low"), high(*this, "both.high");
    vmovups(low, constant(first));
    vpermi2ps(low, a, b);
    vmovups(high, constant(second));
    vpermi2ps(high, a, b);
    vmovups(b, high);
    vmovups(a, low);
}

void Emitter::pair_up(const Vec& first, const Vec& second, int run) {
    std::vector<uint32_t> orders[2];
    for (int half : {0, 1})
        for (int i = 0; i < 16; ++i) {
            const int pair = i / 4 * 4 + half * 2 + i % 4 / 2;
            orders[half].push_back(uint32_t((pair / run * 2 + i % 2) * run + pair % run));
        }
    permute_both(first, second, orders[0], orders[1]);
}

void Emitter::separate(const Vec& even, const Vec& odd, int run) {
    if (run == lanes()) return;
    if (is_512()) {
        std::vector<uint32_t> order, next;
        for (int i = 0; i < 16; ++i) {
            order.push_back(uint32_t(i / run * 2 * run + i % run));
            next.push_back(order.back() + uint32_t(run));
        }
        return permute_both(even, odd, order, next);
    }
    Temp first(*this, "separate.even");
    if (run == 4) {
        const Xbyak::Ymm e(even.getIdx()), o(odd.getIdx());
        vperm2f128(Xbyak::Ymm((*first).getIdx()), e, o, 0x20);
        vperm2f128(o, e, o, 0x31);
    } else {
        vunpcklpd(first, even, odd);
        vunpckhpd(odd, even, odd);
        vpermq(Xbyak::Ymm((*first).getIdx()), Xbyak::Ymm((*first).getIdx()), 0xd8);
        vpermq(Xbyak::Ymm(odd.getIdx()), Xbyak::Ymm(odd.getIdx()), 0xd8);
    }
    vmovups(even, first);
}

void Emitter::interleave(const Vec& even, const Vec& odd, int run) {
    if (run == 8) {  // halves: shuffles, where the others are permutations of two vectors
        const Xbyak::Zmm e(even.getIdx()), o(odd.getIdx());
        Temp upper(*this, "upper halves");
        vshuff64x2(Xbyak::Zmm((*upper).getIdx()), e, o, 0xee);
        vshuff64x2(e, e, o, 0x44);
        return vmovaps(odd, upper);
    }
    if (is_512()) {
        std::vector<uint32_t> first, second;
        for (int i = 0; i < 16; ++i) {
            const int block = i / run, from = block / 2 * run + i % run + block % 2 * 16;
            first.push_back(uint32_t(from));
            second.push_back(uint32_t(from + 8));
        }
        return permute_both(even, odd, first, second);
    }
    Temp low(*this, "interleave.low");
    const Xbyak::Ymm e(even.getIdx()), o(odd.getIdx()), l((*low).getIdx());
    vunpcklps(l, e, o);
    vunpckhps(o, e, o);
    vperm2f128(e, l, o, 0x20);
    vperm2f128(o, l, o, 0x31);
}

}  // namespace quire::jit
