// What the generators have in common that round a query row for decode: its largest magnitude, and what
// follows from that.
#pragma once
#include <cstddef>
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"

namespace quire::jit {

class QueryEmitter : public Emitter {
protected:
    explicit QueryEmitter(const Target& target) : Emitter(target) {}

    // top_ = the largest magnitude of `vectors` vectors of the row, NaN above all: magnitudes are in the
    // order of their bits.
    void begin_row(int vectors) {
        begin();
        mov(row_, ptr[args() + offsetof(QueryArgs, row)]);
        mov(bytes_, ptr[args() + offsetof(QueryArgs, bytes)]);
        mov(starts_, ptr[args() + offsetof(QueryArgs, starts)]);
        mov(factors_, ptr[args() + offsetof(QueryArgs, factors)]);
        emit_top(vectors);
    }
    // top_ = the least that a factor of its own is made of.
    void take_share() {
        Temp least(*this, "least");
        vmulps(least, top_, splat(kLeastShare));
        vmovups(top_, splat(kLeastTop));
        vpmaxsd(top_, top_, least);
    }
    // top_ = what numbers are multiplied by, so that the largest one becomes `largest`; stores the inverse.
    void take_inverse(float largest) {
        Temp factor(*this, "factor");
        vmulps(factor, top_, splat(1 / largest));
        inf_to_nan(factor);
        vmovss(ptr[factors_], Xbyak::Xmm((*factor).getIdx()));
        vmovups(factor, splat(largest));
        vdivps(top_, factor, top_);
    }

    // What makes whole numbers of magnitudes, so that the largest one becomes `most`, and with such a whole
    // number what numbers are multiplied by, so that they are within `largest`.
    void take_units(float largest, float most) {
        units_ = vec("units");
        inverse_of_unit_ = vec("inverse of a unit");
        Temp unit(*this, "unit");
        vmovups(unit, splat(most));
        vdivps(units_, unit, top_);
        vmulps(inverse_of_unit_, units_, splat(largest));
    }
    // unit = that of numbers and whole numbers together.
    void load_unit(const Vec& unit, float largest, float most) {
        vmulps(unit, top_, splat(1 / (largest * most)));
        inf_to_nan(unit);
    }
    // top = the next whole number of units; inverse = what numbers are multiplied by.
    void choose_units(const Vec& top, const Vec& inverse) {
        vmulps(top, top, units_);
        vaddps(top, top, splat(.5f));
        vcvtps2dq(top, top);
        vcvtdq2ps(inverse, top);
        vdivps(inverse, inverse_of_unit_, inverse);
    }
    // top = a factor of its own, so that the largest number becomes `largest`; inverse = as above.
    void choose_factor(const Vec& top, const Vec& inverse, float largest) {
        vmovups(inverse, splat(largest));
        vdivps(inverse, inverse, top);
        vmulps(top, top, splat(1 / largest));
        inf_to_nan(top);
    }

    void keep_larger(const Vec& top, const Xbyak::Operand& x) {
        Temp magnitude(*this, "magnitude");
        vmovups(magnitude, splat_bits(0x7fffffff));
        bit_and(magnitude, magnitude, x);
        vpmaxsd(top, top, magnitude);
    }
    // Of every `of_lanes` that follow each other the largest, or the sum, in all of them.
    void keep_largest(const Vec& top, int of_lanes) {
        across(top, of_lanes, [&](const Vec& moved) { vpmaxsd(top, top, moved); });
    }
    void add_lanes(const Vec& sum, int of_lanes) {
        across(sum, of_lanes, [&](const Vec& moved) { vpaddd(sum, sum, moved); });
    }

    const Vec top_ = vec("top");
    const Gpr row_ = gpr("row"), bytes_ = gpr("bytes"), starts_ = gpr("starts"), factors_ = gpr("factors");

private:
    template <typename Into>
    void across(const Vec& v, int of_lanes, const Into& into) {
        Temp moved(*this, "moved");
        for (int distance = 1; distance < of_lanes; distance *= 2) {
            swap_lanes(moved, v, distance);
            into(moved);
        }
    }

    void emit_top(int vectors) {
        stage("largest magnitude");
        const int each = vectors % 4 == 0 ? 4 : vectors % 2 == 0 ? 2 : 1;
        const std::vector<Vec> tops = vecs("top of its turns", each);
        for (const Vec& top : tops) vmovups(top, splat(kLeastTop));
        times(vectors / each, "left", [&] {
            for (int i = 0; i < each; ++i) keep_larger(tops[size_t(i)], ptr[row_ + i * vec_bytes()]);
            add(row_, each * vec_bytes());
        });
        vmovaps(top_, tops[0]);
        for (int i = 1; i < each; ++i) vpmaxsd(top_, top_, tops[size_t(i)]);
        keep_largest(top_, lanes());
        free(tops);
        mov(row_, ptr[args() + offsetof(QueryArgs, row)]);
    }

    Vec units_, inverse_of_unit_;
};

}  // namespace quire::jit
