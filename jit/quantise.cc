#include "jit/quantise.h"

#include <algorithm>

namespace quire::jit {
namespace {

using Xbyak::Xmm;
using Xbyak::Ymm;

constexpr int kEight = 8;

// Vectors of eight on every target: the steps across lanes are those of AVX2. The emitter gives the lowest
// free registers first, so that all of these have VEX forms.
class Quantise {
public:
    Quantise(Emitter& e, const AppendKey& key, const QuantisedRow& at, Xbyak::Label& special)
        : e_(e), key_(key), group_(key.format.quant_group), at_(at), special_(special) {}

    // for each eight groups (or what is left of them):
    //   m[g] = largest |input| of group g, lane by lane                        emit_magnitudes
    //   largest = lane g: the largest lane of m[g]                             emit_fold
    //   scale = max(largest / max_code, 1e-5), stored; kept in the red zone    emit_scales
    //   codes = round(input / scale), 32 or 16 at a time                       emit_codes
    void emit() {
        const int groups = key_.dim / group_;
        for (int first = 0; first < groups; first += kEight) {
            const int n = std::min(kEight, groups - first);
            emit_scales(first, n);
            const int end = (first + n) * group_;
            for (int i = first * group_; i < end;) {
                const int count = end - i >= 32 ? 32 : 16;
                emit_codes(i, count, first);
                i += count;
            }
        }
    }

private:
    static Ymm y(const Vec& v) { return Ymm(v.getIdx()); }
    static Xmm x(const Vec& v) { return Xmm(v.getIdx()); }
    float max_code() const { return float(format_info(key_.format.type)->max_code); }
    Address input(int element) const { return e_.ptr[at_.input + element * 4]; }

    // As integers: they order magnitudes as floats do, and put Inf and NaN above all others.
    void emit_magnitudes(const std::vector<Vec>& m, int first, int n) {
        Temp mask(e_, "magnitude"), next(e_, "next");
        e_.vmovups(y(mask), e_.splat_bits(0x7fffffff));
        for (int g = 0; g < n; ++g)
            for (int i = 0; i < group_; i += kEight) {
                const Vec& to = i == 0 ? m[size_t(g)] : *next;
                e_.vpand(y(to), y(mask), input((first + g) * group_ + i));
                if (i > 0) e_.vpmaxsd(y(m[size_t(g)]), y(m[size_t(g)]), y(next));
            }
        for (int g = n; g < kEight; ++g) e_.vpxor(x(m[size_t(g)]), x(m[size_t(g)]), x(m[size_t(g)]));
    }

    // a = max of the lower and upper parts of a and b, as `low` and `high` take them apart.
    template <typename Low, typename High>
    void fold_pair(const Vec& a, const Vec& b, const Low& low, const High& high) {
        Temp part(e_, "part");
        high(y(part), y(a), y(b));
        low(y(a), y(a), y(b));
        e_.vpmaxsd(y(a), y(a), y(part));
    }

    void emit_fold(const std::vector<Vec>& m) {
        for (size_t i = 0; i < kEight; i += 2)
            fold_pair(
                m[i], m[i + 1], [&](Ymm d, Ymm a, Ymm b) { e_.vunpcklps(d, a, b); },
                [&](Ymm d, Ymm a, Ymm b) { e_.vunpckhps(d, a, b); });
        for (size_t i = 0; i < kEight; i += 4)
            fold_pair(
                m[i], m[i + 2], [&](Ymm d, Ymm a, Ymm b) { e_.vunpcklpd(d, a, b); },
                [&](Ymm d, Ymm a, Ymm b) { e_.vunpckhpd(d, a, b); });
        fold_pair(
            m[0], m[4], [&](Ymm d, Ymm a, Ymm b) { e_.vperm2f128(d, a, b, 0x20); },
            [&](Ymm d, Ymm a, Ymm b) { e_.vperm2f128(d, a, b, 0x31); });
    }

    void emit_scales(int first, int n) {
        const std::vector<Vec> m = e_.vecs("largest", kEight);
        emit_magnitudes(m, first, n);
        emit_fold(m);
        const Vec &scale = m[0], &other = m[1];
        e_.vmovups(y(other), e_.splat_bits(0x7f7fffff));  // the largest finite
        e_.vpcmpgtd(y(other), y(scale), y(other));
        e_.vptest(y(other), y(other));
        e_.jnz(special_, e_.T_NEAR);
        e_.vdivps(y(scale), y(scale), e_.splat(max_code()));
        e_.vmaxps(y(scale), y(scale), e_.splat(kSmallestScale));
        e_.vmovups(e_.ptr[red_zone(0)], y(scale));
        const int bytes = type_bits(key_.format.scale_type) / 8;
        e_.store_number(key_.format.scale_type, at_.scales + first * bytes, scale, n);
        e_.free(m);
    }

    RegExp red_zone(int group) const { return e_.rsp - 32 + group * 4; }

    // `count` codes from element i on; `first` is the group whose scale is first in the red zone.
    void emit_codes(int i, int count, int first) {
        const std::vector<Vec> v = e_.vecs("codes", count / kEight);
        Temp scale(e_, "scale");
        for (int j = 0; j < count / kEight; ++j) {
            const int element = i + j * kEight;
            if (j == 0 || element % group_ == 0)
                e_.vbroadcastss(y(scale), e_.ptr[red_zone(element / group_ - first)]);
            e_.vmovups(y(v[size_t(j)]), input(element));
            e_.vdivps(y(v[size_t(j)]), y(v[size_t(j)]), y(scale));
            e_.vcvtps2dq(y(v[size_t(j)]), y(v[size_t(j)]));  // ties to even
        }
        for (int j = 0; j < count / kEight; j += 2)
            e_.vpackssdw(y(v[size_t(j)]), y(v[size_t(j)]), y(v[size_t(j + 1)]));
        e_.vpacksswb(y(v[0]), y(v[0]), y(v[count == 32 ? 2 : 0]));
        // Each 128 bits hold dwords of vectors 0, 1, 2, 3 (or 0, 1, 0, 1).
        const std::vector<uint32_t> order = count == 32 ? std::vector<uint32_t>{0, 4, 1, 5, 2, 6, 3, 7}
                                                        : std::vector<uint32_t>{0, 4, 1, 5, 0, 4, 1, 5};
        e_.vmovups(y(scale), e_.constant(whole(order)));
        e_.vpermd(y(v[0]), y(scale), y(v[0]));
        key_.format.type == QUIRE_INT4 ? emit_nibbles(v[0], i, count) : emit_bytes(v[0], i, count);
        e_.free(v);
    }

    std::vector<uint32_t> whole(std::vector<uint32_t> words) const {
        words.resize(size_t(e_.lanes()));
        return words;
    }

    void emit_bytes(const Vec& codes, int i, int count) {
        count == 32 ? e_.vmovdqu(e_.ptr[at_.row + i], y(codes)) : e_.vmovdqu(e_.ptr[at_.row + i], x(codes));
    }

    // Two codes to a byte: even + 16 * odd of their low four bits.
    void emit_nibbles(const Vec& codes, int i, int count) {
        e_.vpand(y(codes), y(codes), e_.splat_bits(0x0f0f0f0f));
        Temp weights(e_, "weights");
        e_.vmovups(y(weights), e_.splat_bits(0x10011001));
        e_.vpmaddubsw(y(codes), y(codes), y(weights));
        e_.vpackuswb(y(codes), y(codes), y(codes));
        if (count == 16) return e_.vmovq(e_.ptr[at_.row + i / 2], x(codes));
        e_.vpermq(y(codes), y(codes), 0x08);
        e_.vmovdqu(e_.ptr[at_.row + i / 2], x(codes));
    }

    Emitter& e_;
    const AppendKey& key_;
    const int group_;
    const QuantisedRow at_;
    Xbyak::Label& special_;
};

}  // namespace

bool can_quantise(const AppendKey& key) {
    return key.input_type == QUIRE_F32 && is_quantised(key.format) && key.format.quant_group % kEight == 0 &&
           key.dim % 16 == 0 && key.format.scale_type != QUIRE_BF16;
}

void emit_quantise(Emitter& e, const AppendKey& key, const QuantisedRow& at, Xbyak::Label& special) {
    Quantise(e, key, at, special).emit();
}

}  // namespace quire::jit
