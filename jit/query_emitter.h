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

    void keep_larger(const Vec& top, const Xbyak::Operand& x) {
        Temp magnitude(*this, "magnitude");
        vmovups(magnitude, splat_bits(0x7fffffff));
        bit_and(magnitude, magnitude, x);
        vpmaxsd(top, top, magnitude);
    }
    // Of every `of_lanes` that follow each other the largest, or the sum, in all of them.
    void keep_largest(const Vec& top, int of_lanes) {
        Temp moved(*this, "moved");
        for (int distance = 1; distance < of_lanes; distance *= 2) {
            swap_lanes(moved, top, distance);
            vpmaxsd(top, top, moved);
        }
    }
    void add_lanes(const Vec& sum, int of_lanes) {
        Temp moved(*this, "moved");
        for (int distance = 1; distance < of_lanes; distance *= 2) {
            swap_lanes(moved, sum, distance);
            vpaddd(sum, sum, moved);
        }
    }

    const Vec top_ = vec("top");
    const Gpr row_ = gpr("row"), bytes_ = gpr("bytes"), starts_ = gpr("starts"), factors_ = gpr("factors");

private:
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
};

}  // namespace quire::jit
