// What integer weights of rows and of blocks of tokens have in common.
#pragma once
#include <cstddef>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class WeightsEmitter : public Emitter {
protected:
    explicit WeightsEmitter(const RowKey& key) : Emitter(*key.target), key_(key) {}

    // What words of 15 bits and a sign are relative to: probabilities are at most 1.
    void emit_inverse(const Vec& inverse, const Vec& top) {
        vmovups(inverse, splat(kLargestWord));
        vdivps(inverse, inverse, top);
    }
    // factor = top of the scales / 32767 * what row r's probabilities are relative to
    void emit_factor(const Vec& factor, const Vec& top, int r) {
        mov(rax, ptr[args() + offsetof(WeightsArgs, block)]);
        broadcast(factor, ptr[rax + (2 * r + 1) * 4]);
        vmulps(factor, factor, splat(1 / kLargestWord));
        vmulps(factor, factor, top);
    }

    const RowKey key_;
    const Gpr probabilities_ = gpr("probabilities"), count_ = gpr("count");
};

}  // namespace quire::jit
