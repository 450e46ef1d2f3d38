// What weights that are bytes have in common, of rows and of blocks of tokens.
#pragma once
#include <cstddef>

#include "jit/weights_bytes.h"
#include "jit/weights_emitter.h"

namespace quire::jit {

// for each four rows, for each run of keys:                                         emit_probabilities
//   top[r] = max of p[r]; runs[r] = round(top[r] * kMostFactor)
//   p[r] = words round(p[r] / top[r] * kOfProbability)
// for each set of groups:
//   top[g] = max over keys of scale[key][g]; NaN if one of them is                  emit_top
//   words[key][g] = round(scale[key][g] / top[g] * kOfScale)                        emit_scales
//   for r:                                                                          emit_rows
//     weights[r][key][g] = max(round(p[r][key] * words[key][g] / 2^15), 0)
//     factors[r][g] = top[g] / kMostWeight / kMostFactor * the row's of the block
class WeightsBytesEmitter : public WeightsEmitter {
protected:
    // Words that make a weight, kOfProbability * kOfScale / 2^15 = kMostWeight.
    static constexpr float kOfProbability = 4096, kOfScale = 2040;
    static_assert(kOfProbability * kOfScale == 32768 * ValueBytes::kMostWeight);
    static constexpr int kTurn = ValueBytes::kTurn;

    explicit WeightsBytesEmitter(const RowKey& key) : WeightsEmitter(key), form_(key) {}
    void generate();

    // What is the same for all keys, in registers until drop_order().
    virtual void hold_order() {}
    virtual void drop_order() {}
    // p = probabilities of a turn's keys * inverse, in the order of a lane's bytes.
    virtual void load_probabilities(const Vec& p, const Vec& inverse, const RegExp& at) = 0;
    // top = those of the set, in both halves. Ends with write_signs.
    virtual void emit_top(const Vec& top, int set) = 0;
    // [each turn's keys][groups 0, 1; 2, 3][four keys, the other four][group][key], at scale_words().
    virtual void emit_scales(const Vec& top, int set) = 0;

    // body() for so many keys at a time: scales_ is `first` bytes behind them, and moves by `step`.
    template <typename Body>
    void for_each_scales(int keys, int first, int step, const Body& body) {
        mov(scales_, ptr[args() + offsetof(WeightsArgs, scales)]);
        if (first > 0) add(scales_, first);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(scales_, step);
        sub(count_, keys);
        jnz(each, T_NEAR);
    }

    // Sign bits of scales of the set, in the lanes of a mask for vmovmskps.
    void write_signs(const Vec& signs, int set, uint32_t lanes);
    RegExp scale_words() const { return weights_ + form_.scales_at(); }
    int groups_of(int set) const {
        const int left = key_.groups() - set * ValueBytes::kSet;
        return left < ValueBytes::kSet ? left : ValueBytes::kSet;
    }
    static Xbyak::Xmm x(const Vec& v) { return Xbyak::Xmm(v.getIdx()); }
    static Xbyak::Ymm y(const Vec& v) { return Xbyak::Ymm(v.getIdx()); }

    const ValueBytes form_;
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), words_ = gpr("words");

private:
    static constexpr int kTransposed = 4, kTurns = ValueBytes::kRun / kTurn;

    void emit_probabilities(int row, int rows);
    void emit_tops(int rows);
    void emit_rows(const Vec& top, int set);
    // Where the words of scales are not yet.
    RegExp inverse_at(int r) const { return scale_words() + r * 4; }
    RegExp run_factor_at(int r) const { return inverse_at(kTransposed + r); }
};

}  // namespace quire::jit
