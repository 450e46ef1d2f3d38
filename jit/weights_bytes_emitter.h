// What weights that are bytes have in common, of rows and of blocks of tokens.
#pragma once
#include <cstddef>

#include "jit/weights_bytes.h"
#include "jit/weights_emitter.h"

namespace quire::jit {

// for each set of groups:
//   top[g] = max over keys of scale[key][g]; NaN if one of them is                  emit_top
//   words[key][g] = round(scale[key][g] / top[g] * of_scale())                      emit_scales
//   by fours: share[key] = max over all groups of that, not below kLeastShare
// for each four rows, for each run of keys:                                         emit_probabilities
//   top[r] = max of p[r]; runs[r] = round(top[r] * most_factor)
//   p[r] = words round(p[r] / top[r] * of_probability())
//   by fours: top[r] = max of p[r] * share of two keys together, next emit_probabilities_by_fours larger
//   number of runs[r] / most_factor
// for each set of groups, for r:                                                    emit_rows
//   weights[r][key][g] = max(round(p[r][key] * words[key][g] / 2^15), 0)
//   factors[r][g] = top[g] / most_weight / most_factor * the row's of the block
class WeightsBytesEmitter : public WeightsEmitter {
protected:
    // Words that make a weight: of_probability() * of_scale() / 2^15 is the largest. By fours words of
    // probabilities are up to so many times larger as shares of scales are smaller.
    float of_probability() const { return form_.by_fours() ? 1024 : 4096; }
    float of_scale() const { return 32768 / of_probability() * float(form_.form.most_weight); }
    // What is below it would make words of probabilities too large.
    float least_share() const { return of_scale() * of_probability() / 32768; }
    static constexpr int kTurn = ValueBytes::kTurn;

    explicit WeightsBytesEmitter(const RowKey& key) : WeightsEmitter(key), form_(key) {}
    void generate();

    // What is the same for all keys, in registers until drop_order().
    virtual void hold_order() {}
    virtual void drop_order() {}
    // v = numbers of a turn's keys, in the order of a lane's bytes.
    virtual void load_ordered(const Vec& v, const RegExp& at) = 0;
    // top = those of the set, in both halves. Ends with write_signs.
    virtual void emit_top(const Vec& top, int set) = 0;
    // [each turn's keys][groups 0, 1; 2, 3][four keys, the other four][group][key], at
    // words_; and by fours shares, of the set and of the ones before, in the order of a lane's bytes.
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
    RegExp shares() const { return weights_ + form_.shares_at(); }
    int groups_of(int set) const {
        const int left = key_.groups() - set * ValueBytes::kSet;
        return left < ValueBytes::kSet ? left : ValueBytes::kSet;
    }
    static Xbyak::Xmm x(const Vec& v) { return Xbyak::Xmm(v.getIdx()); }
    static Xbyak::Ymm y(const Vec& v) { return Xbyak::Ymm(v.getIdx()); }

    const ValueBytes form_;
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), words_ = gpr("words");

private:
    static constexpr int kTransposed = 4, kTurns = ValueBytes::kOfNibbles.run / kTurn;

    void emit_probabilities(int row, int rows);
    void emit_probabilities_by_fours(int row, int rows);
    void emit_fours(int row, int rows, const Gpr& turn);
    void store_words_of(const Vec& p, const Vec& inverse, const RegExp& to);
    void emit_tops(int rows);
    void emit_rows(int set);
    RegExp inverse_at(int r) const { return weights_ + form_.tops_at(form_.sets) + r * 4; }
    RegExp run_factor_at(int r) const { return inverse_at(kTransposed + r); }
};

}  // namespace quire::jit
