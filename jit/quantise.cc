#include "jit/quantise.h"

#include <algorithm>

namespace quire::jit {
namespace {

using Xbyak::Xmm;
using Xbyak::Ymm;

constexpr int kEight = 8;

// Vectors of eight on every target: the steps across lanes are those of AVX2. The emitter gives the lowest
// free registers first, so that all of these have VEX forms.
//
// A division takes as long as ten other instructions, so codes come from a multiplication by the reciprocal
// wherever that proves the same code. One FMA gives t = input * reciprocal + bias in fixed point: bias is 1.5
// * 2^k, so that the last bit of t is worth `unit` = 2^-15 (int8) or 2^-16 (int4), plus 0.5 + unit. Then
//   |reciprocal * scale - 1| <= 2^-24, times |input / scale| <= 127.1 (7.1)   below 0.26 (0.03) unit
//   the FMA rounds once, to unit                                              at most 0.5 unit
//   the division that is wanted rounds to f32                                 at most 0.125 (0.02) unit
// so t, without 1.5 * 2^k, is above the rounded quotient + 0.5, by less than 2 units. Where its fraction is 2
// units or more, both have the same floor, and the quotient is not a tie: that floor is the code. Where one
// of the row is less (6 (3) numbers of 100000 are), all codes of the row are divided.
//
// Of float16 and bfloat16 rows scale and quotient are rounded to that type, as a reference that computes in
// it has them: all codes are divided.
class Quantise {
public:
    Quantise(Emitter& e, const AppendKey& key, const QuantisedRow& at)
        : e_(e),
          key_(key),
          format_(key.format),
          group_(key.format.quant_group),
          int4_(key.format.type == QUIRE_INT4),
          rounds_(key.row_type() != QUIRE_F32),
          at_(at) {}

    // for each eight groups (or what is left of them):
    //   m[g] = largest |input| of group g, lane by lane                        emit_magnitudes
    //   largest = lane g: the largest lane of m[g]                             emit_fold
    void emit_largest(const Vec& spoilt) {
        e_.stage("largest");
        for_each_groups([&](const Groups& of) { emit_largest(of, spoilt); });
    }

    // scale = max(largest / max_code, 1e-5)
    void emit_scales() {
        e_.stage("scales");
        Temp scale(e_, "scale");
        for_each_groups([&](const Groups& of) {
            e_.vmovups(y(scale), e_.ptr[scale_of(of.first)]);
            e_.vdivps(y(scale), y(scale), e_.splat(max_code()));
            round(scale);
            e_.vmaxps(y(scale), y(scale), e_.splat(round_to(key_.row_type(), kSmallestScale)));
            e_.vmovups(e_.ptr[scale_of(of.first)], y(scale));
            const int bytes = type_bits(format_.scale_type) / 8;
            e_.store_number(format_.scale_type, at_.scales + of.first * bytes, scale, of.count);
        });
    }

    // Of 1e-5 .. 2.7e36: they neither overflow nor are they subnormal.
    void emit_reciprocals() {
        if (rounds_) return;
        e_.stage("reciprocals");
        Temp one(e_, "one"), reciprocal(e_, "reciprocal");
        e_.vmovups(y(one), e_.splat(1.f));
        for_each_groups([&](const Groups& of) {
            e_.vdivps(y(reciprocal), y(one), e_.ptr[scale_of(of.first)]);
            e_.vmovups(e_.ptr[reciprocal_of(of.first)], y(reciprocal));
        });
    }

    // codes = round(input / scale), 32 or 16 at a time                         emit_multiplied
    // rarely                                                                   emit_divided
    void emit_codes(const Vec& spoilt, Label& special, const std::function<void()>& halfway,
                    const std::function<void()>& before_end) {
        if (rounds_) {
            emit_divided(halfway);
            before_end();
            e_.vptest(y(spoilt), y(spoilt));
            return e_.jnz(special, Emitter::T_NEAR);
        }
        Label rare, done;
        emit_multiplied(spoilt, rare, halfway, before_end);
        e_.jmp(done, Emitter::T_NEAR);
        e_.L(rare);
        e_.vptest(y(spoilt), y(spoilt));
        e_.jnz(special, Emitter::T_NEAR);
        emit_divided([] {});
        e_.L(done);
    }

private:
    struct Groups {
        int first, count;
    };
    template <typename Body>
    void for_each_groups(const Body& body) {
        const int groups = key_.dim / group_;
        for (int first = 0; first < groups; first += kEight)
            body(Groups{first, std::min(kEight, groups - first)});
    }
    static Ymm y(const Vec& v) { return Ymm(v.getIdx()); }
    static Xmm x(const Vec& v) { return Xmm(v.getIdx()); }
    float max_code() const { return float(format_info(format_.type)->max_code); }
    Address input(int element) const {
        return e_.ptr[at_.input + element * (type_bits(key_.row_type()) / 8)];
    }
    void load_input(const Vec& v, int element) {
        switch (key_.row_type()) {
            case QUIRE_F16: return e_.vcvtph2ps(y(v), input(element));
            case QUIRE_BF16: e_.vpmovzxwd(y(v), input(element)); return e_.vpslld(y(v), y(v), 16);
            default: return e_.vmovups(y(v), input(element));
        }
    }
    // To the type of the row. NaN is left to those who take spoilt rows.
    void round(const Vec& v) {
        if (key_.row_type() == QUIRE_F16) {
            e_.vcvtps2ph(x(v), y(v), 0);
            e_.vcvtph2ps(y(v), x(v));
        } else if (key_.row_type() == QUIRE_BF16) {
            Temp even(e_, "even");
            e_.vpsrld(y(even), y(v), 16);
            e_.vpand(y(even), y(even), e_.splat_bits(1));
            e_.vpaddd(y(v), y(v), e_.splat_bits(0x7fff));
            e_.vpaddd(y(v), y(v), y(even));
            e_.vpand(y(v), y(v), e_.splat_bits(0xffff0000));
        }
    }

    // As integers: they order magnitudes as floats do, and put Inf and NaN above all others.
    void emit_magnitudes(const std::vector<Vec>& m, const Groups& of) {
        Temp mask(e_, "magnitude"), next(e_, "next");
        e_.vmovups(y(mask), e_.splat_bits(0x7fffffff));
        for (int g = 0; g < of.count; ++g)
            for (int i = 0; i < group_; i += kEight) {
                const Vec& to = i == 0 ? m[size_t(g)] : *next;
                if (rounds_) load_input(to, (of.first + g) * group_ + i);
                rounds_ ? e_.vpand(y(to), y(to), y(mask))
                        : e_.vpand(y(to), y(mask), input((of.first + g) * group_ + i));
                if (i > 0) e_.vpmaxsd(y(m[size_t(g)]), y(m[size_t(g)]), y(next));
            }
        for (size_t g = size_t(of.count); g < m.size(); ++g) e_.vpxor(x(m[g]), x(m[g]), x(m[g]));
    }

    // a = max of the lower and upper parts of a and b, as `low` and `high` take them apart.
    template <typename Low, typename High>
    void fold_pair(const Vec& a, const Vec& b, const Low& low, const High& high) {
        Temp part(e_, "part");
        high(y(part), y(a), y(b));
        low(y(a), y(a), y(b));
        e_.vpmaxsd(y(a), y(a), y(part));
    }

    // m[0] = lane g: the largest lane of m[g]; of fewer than eight, again from there on.
    void emit_fold(const std::vector<Vec>& m) {
        const auto other = [&](size_t i, size_t distance) {
            return m[i + distance < m.size() ? i + distance : i];
        };
        for (size_t i = 0; i < m.size(); i += 2)
            fold_pair(
                m[i], other(i, 1), [&](Ymm d, Ymm a, Ymm b) { e_.vunpcklps(d, a, b); },
                [&](Ymm d, Ymm a, Ymm b) { e_.vunpckhps(d, a, b); });
        for (size_t i = 0; i < m.size(); i += 4)
            fold_pair(
                m[i], other(i, 2), [&](Ymm d, Ymm a, Ymm b) { e_.vunpcklpd(d, a, b); },
                [&](Ymm d, Ymm a, Ymm b) { e_.vunpckhpd(d, a, b); });
        fold_pair(
            m[0], other(0, 4), [&](Ymm d, Ymm a, Ymm b) { e_.vperm2f128(d, a, b, 0x20); },
            [&](Ymm d, Ymm a, Ymm b) { e_.vperm2f128(d, a, b, 0x31); });
    }

    void emit_largest(const Groups& of, const Vec& spoilt) {
        int width = 1;
        while (width < of.count) width *= 2;
        const std::vector<Vec> m = e_.vecs("largest", width);
        emit_magnitudes(m, of);
        emit_fold(m);
        e_.vmovups(e_.ptr[scale_of(of.first)], y(m[0]));
        const Vec& infinite = of.first == 0 ? spoilt : m[0];
        e_.vpcmpgtd(y(infinite), y(m[0]), e_.splat_bits(0x7f7fffff));  // above the largest finite
        if (of.first != 0) e_.vpor(y(spoilt), y(spoilt), y(infinite));
        e_.free(m);
    }

    RegExp scale_of(int group) const { return at_.slot + group * 4; }
    RegExp reciprocal_of(int group) const { return at_.slot + (key_.slot_groups() + group) * 4; }

    // body(element, count): 32 elements at a time, or 16.
    template <typename Body>
    void for_each_block(const Body& body) {
        for (int i = 0; i < key_.dim;) {
            const int count = key_.dim - i >= 32 ? 32 : 16;
            body(i, count);
            i += count;
        }
    }

    void emit_multiplied(const Vec& spoilt, Label& rare, const std::function<void()>& halfway,
                         const std::function<void()>& before_end) {
        Temp bias(e_, "bias"), nearest(e_, "nearest"), order(e_, "order");
        e_.vmovups(y(bias), e_.splat(int4_ ? 192.5f + 0x1p-16f : 384.5f + 0x1p-15f));
        e_.vpcmpeqd(y(nearest), y(nearest), y(nearest));
        emit_order(order);
        bool half = false;
        for_each_block([&](int i, int count) {
            e_.stage("codes " + std::to_string(i) + " on");
            emit_block(i, count, bias, nearest, order);
            if (!half && (i + count) * 2 >= key_.dim) {
                half = true;
                halfway();
            }
        });
        before_end();
        e_.vpandn(y(nearest), y(spoilt), y(nearest));
        e_.vmovups(y(bias), e_.splat_bits(int4_ ? 0x00020002 : 0x00040004));  // 2 units
        e_.vpsubusw(y(bias), y(bias), y(nearest));
        e_.vptest(y(bias), y(bias));
        e_.jnz(rare, Emitter::T_NEAR);
    }

    void emit_block(int i, int count, const Vec& bias, const Vec& nearest, const Vec& order) {
        Temp factor(e_, "factor"), fraction(e_, "fraction");
        const std::vector<Vec> t = e_.vecs("t", count / kEight);
        for (int j = 0; j < count / kEight; ++j) {
            const int element = i + j * kEight;
            const Vec& v = t[size_t(j)];
            if (element % group_ == 0 || j == 0)
                e_.broadcast(y(factor), e_.ptr[reciprocal_of(element / group_)]);
            e_.vmovups(y(v), input(element));
            e_.vfmadd213ps(y(v), y(factor), y(bias));
            // Lower words are fractions (int8: doubled, without the code's last bit), upper ones are large.
            if (!int4_) e_.vpaddw(y(fraction), y(v), y(v));
            e_.vpminuw(y(nearest), y(nearest), int4_ ? y(v) : y(fraction));
            e_.vpsrld(y(v), y(v), int4_ ? 16 : 15);
        }
        for (int j = 0; j < count / kEight; j += 2) {
            const Vec& v = t[size_t(j)];
            e_.vpackusdw(y(v), y(v), y(t[size_t(j + 1)]));
            // The bits of the code alone: 0x4340 is 0 in int4, 0x8780 in int8.
            int4_ ? e_.vpand(y(v), y(v), e_.splat_bits(0x000f000f))
                  : e_.vpxor(y(v), y(v), e_.splat_bits(0x87808780));
        }
        e_.vpackuswb(y(t[0]), y(t[0]), y(t[count == 32 ? 2 : 0]));
        emit_store(t[0], order, i, count);
        e_.free(t);
    }

    void emit_divided(const std::function<void()>& halfway) {
        e_.stage("divided codes");
        Temp scale(e_, "scale"), order(e_, "order");
        emit_order(order);
        bool half = false;
        for_each_block([&](int i, int count) {
            const std::vector<Vec> v = e_.vecs("codes", count / kEight);
            for (int j = 0; j < count / kEight; ++j) {
                const int element = i + j * kEight;
                e_.broadcast(y(scale), e_.ptr[scale_of(element / group_)]);
                load_input(v[size_t(j)], element);
                e_.vdivps(y(v[size_t(j)]), y(v[size_t(j)]), y(scale));
                round(v[size_t(j)]);
                e_.vcvtps2dq(y(v[size_t(j)]), y(v[size_t(j)]));  // ties to even
            }
            for (int j = 0; j < count / kEight; j += 2) {
                const Vec& words = v[size_t(j)];
                e_.vpackssdw(y(words), y(words), y(v[size_t(j + 1)]));
                if (!rounds_) continue;  // a scale that was rounded may be too small
                e_.vpminsw(y(words), y(words), e_.splat_bits(uint32_t(int(max_code())) * 0x10001));
                e_.vpmaxsw(y(words), y(words), e_.splat_bits(uint32_t(0xffff & -int(max_code())) * 0x10001));
            }
            e_.vpacksswb(y(v[0]), y(v[0]), y(v[count == 32 ? 2 : 0]));
            if (int4_) e_.vpand(y(v[0]), y(v[0]), e_.splat_bits(0x0f0f0f0f));
            emit_store(v[0], order, i, count);
            e_.free(v);
            if (half || (i + count) * 2 < key_.dim) return;
            half = true;
            halfway();
        });
    }

    // What emit_store needs in a register.
    void emit_order(const Vec& order) {
        std::vector<uint32_t> words = {0, 4, 1, 5, 2, 6, 3, 7};
        if (int4_) words.assign(kEight, 0x10011001);
        words.resize(size_t(e_.lanes()));
        e_.vmovups(y(order), e_.constant(words));
    }

    // Bytes of codes (int4: their low four bits) in dwords of vectors 0, 1, 2, 3 (or 0, 1, 0, 1) in each 128
    // bits.
    void emit_store(const Vec& codes, const Vec& order, int i, int count) {
        if (int4_) return emit_nibbles(codes, order, i, count);
        e_.vpermd(y(codes), y(order), y(codes));
        count == 32 ? e_.vmovdqu(e_.ptr[at_.row + i], y(codes)) : e_.vmovdqu(e_.ptr[at_.row + i], x(codes));
    }

    // Two codes to a byte: even + 16 * odd.
    void emit_nibbles(const Vec& codes, const Vec& weights, int i, int count) {
        Temp upper(e_, "upper");
        e_.vpmaddubsw(y(codes), y(codes), y(weights));
        e_.vpackuswb(y(codes), y(codes), y(codes));
        e_.vextracti128(x(upper), y(codes), 1);
        e_.vpunpcklwd(x(codes), x(codes), x(upper));
        count == 32 ? e_.vmovdqu(e_.ptr[at_.row + i / 2], x(codes))
                    : e_.vmovq(e_.ptr[at_.row + i / 2], x(codes));
    }

    Emitter& e_;
    const AppendKey& key_;
    const quire_format format_;
    const int group_;
    const bool int4_, rounds_;
    const QuantisedRow at_;
};

}  // namespace

bool can_quantise(const AppendKey& key) {
    return is_quantised(key.format) && key.format.quant_group % kEight == 0 && key.dim % 16 == 0 &&
           key.format.scale_type != QUIRE_BF16;
}

void emit_largest(Emitter& e, const AppendKey& key, const QuantisedRow& at, const Vec& spoilt) {
    Quantise(e, key, at).emit_largest(spoilt);
}

void emit_scales(Emitter& e, const AppendKey& key, const QuantisedRow& at) {
    Quantise(e, key, at).emit_scales();
}

void emit_reciprocals(Emitter& e, const AppendKey& key, const QuantisedRow& at) {
    Quantise(e, key, at).emit_reciprocals();
}

void emit_codes(Emitter& e, const AppendKey& key, const QuantisedRow& at, const Vec& spoilt, Label& special,
                const std::function<void()>& halfway, const std::function<void()>& before_end) {
    Quantise(e, key, at).emit_codes(spoilt, special, halfway, before_end);
}

}  // namespace quire::jit
