// What integer weights of rows and of blocks of tokens have in common: probabilities relative to the largest
// of each query row.
#pragma once
#include <cstddef>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class WeightsEmitter : public Emitter {
protected:
    explicit WeightsEmitter(const RowKey& key) : Emitter(*key.target), key_(key) {}

    template <typename Body>
    void for_each_vector(int r, const Body& body) {
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        if (r > 0) add(probabilities_, r * kBlock * 4);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(probabilities_, vec_bytes());
        sub(count_, lanes());
        jnz(each, T_NEAR);
    }

    // top = max over keys of p[r][key]; p[r][key] *= 32767 / top; store_factor(top / 32767, in all lanes)
    template <typename StoreFactor>
    void emit_row(int r, const StoreFactor& store_factor) {
        stage("row " + std::to_string(r));
        Temp top(*this, "top");
        vmovups(top, splat(kLeastTop));
        for_each_vector(r, [&] { vmaxps(top, top, ptr[probabilities_]); });
        fold(Fold::max, top);
        Temp factor(*this, "factor");
        vmulps(factor, top, splat(1 / kLargestWord));
        store_factor(*factor);
        vmovups(factor, splat(kLargestWord));
        vdivps(top, factor, top);
        for_each_vector(r, [&] {
            vmulps(factor, top, ptr[probabilities_]);
            vmovups(ptr[probabilities_], factor);
        });
    }

    const RowKey key_;
    const Gpr probabilities_ = gpr("probabilities"), count_ = gpr("count");
};

}  // namespace quire::jit
