// What queries in the lanes have in common that are not of floats (jit/args.h: TileQueryArgs).
#pragma once
#include <cstddef>
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class TileQuery : public Emitter {
protected:
    static constexpr uint32_t kMagnitude = 0x7fffffff;

    explicit TileQuery(const RowKey& key) : Emitter(*key.target), key_(key) {}

    void emit_pointers() {
        mov(columns_, ptr[args() + offsetof(TileQueryArgs, columns)]);
        mov(query_, ptr[args() + offsetof(TileQueryArgs, query)]);
        mov(stride_, ptr[args() + offsetof(TileQueryArgs, stride)]);
        vmovups(magnitude_, splat_bits(kMagnitude));
    }

    Address column(int d) const { return ptr[columns_ + d * vec_bytes()]; }

    // The next row of the query.
    void emit_store(const Vec& v) {
        vmovups(ptr[query_], v);
        add(query_, stride_);
    }

    // top = max(top, |x|), NaN above all: magnitudes are in the order of their bits.
    void emit_top(const Vec& top, const Address& x) {
        Temp magnitude(*this, "magnitude");
        bit_and(magnitude, magnitude_, x);
        vpmaxsd(top, top, magnitude);
    }

    // top = largest magnitude of each lane; inverse = largest / top, and where TileQueryArgs::factors points
    // to top / largest, NaN where top is not finite.
    void emit_row_factors(const Vec& inverse, float largest) {
        stage("factors");
        const std::vector<Vec> tops = vecs("top", 4);
        for (const Vec& top : tops) vmovups(top, splat(kLeastTop));
        repeat(key_.dim / 4, [&] {
            for (int i = 0; i < 4; ++i) emit_top(tops[size_t(i)], column(i));
            add(columns_, 4 * vec_bytes());
        });
        for (int i = 1; i < 4; ++i) vpmaxsd(tops[0], tops[0], tops[size_t(i)]);
        const Vec& factor = tops[1];  // of no more use
        vmovups(inverse, splat(largest));
        vdivps(inverse, inverse, tops[0]);
        vmulps(factor, tops[0], splat(1 / largest));
        inf_to_nan(factor);
        const Gpr factors = gpr("factors");
        mov(factors, ptr[args() + offsetof(TileQueryArgs, factors)]);
        vmovups(ptr[factors], factor);
        free(factors);
        free(tops);
        mov(columns_, ptr[args() + offsetof(TileQueryArgs, columns)]);
    }

    // body(): advances columns_ by itself.
    template <typename Body>
    void repeat(int times, const Body& body) {
        Label each;
        mov(left_, times);
        L(each);
        body();
        dec(left_);
        jnz(each, T_NEAR);
    }

    const RowKey key_;
    const Gpr columns_ = gpr("columns"), query_ = gpr("query"), stride_ = gpr("stride"), left_ = gpr("left");
    const Vec magnitude_ = vec("bits of a magnitude");
};

}  // namespace quire::jit
