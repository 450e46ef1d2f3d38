// What both forms of softmax, jit/softmax.cc and jit/tile_softmax.cc, have in common.
#pragma once
#include <cmath>
#include <limits>

#include "jit/kernel_key.h"
#include "jit/math.h"

namespace quire::jit {

// Shared by both forms of softmax: what happens to scores between QK and exp2.
class SoftmaxEmitter : public Emitter {
protected:
    SoftmaxEmitter(const Target& target, const ScoreKey& key) : Emitter(target), key_(key) {}

    // score = cap * tanh(score); the query was divided by the cap.
    void emit_soft_cap(const Vec& score, const RegExp& cap) {
        if (!key_.soft_cap) return;
        emit_tanh(*this, score);
        multiply_by_scalar(score, cap);
    }

    // score += bias; -Inf hides also where the score is NaN.
    void emit_bias(const Vec& score, const RegExp& bias) {
        if (!key_.bias) return;
        Temp added(*this, "bias");
        vmovups(added, ptr[bias]);
        change_unless_equal(added, splat(-INFINITY),
                            [&](const Vec& d, const Vec& s) { vaddps(d, s, score); });
        vmovaps(score, added);
    }

    // A row that has seen nothing has maximum -Inf; subtracting that would give NaN.
    void emit_finite(const Vec& d, const Vec& maximum) {
        vmaxps(d, maximum, splat(std::numeric_limits<float>::lowest()));
    }

    const ScoreKey key_;
};

}  // namespace quire::jit
