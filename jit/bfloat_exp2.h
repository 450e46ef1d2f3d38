// 2^(score - top) rounded to bfloat16, of two vectors at a time, in lanes of 16 bits: half the operations of
// float32 lanes. On targets with dot products of bfloat16.
#pragma once
#include <vector>

#include "jit/emitter.h"

namespace quire::jit {

// The bits of a bfloat16 number 2^(whole + part) are 128 * (127 + whole + part), less 128 * (1 + part -
// 2^part). So, with two bits more and what rounds,
//   t = 512 * (score - top) + 512 * 127 + 1.5, as a word: 0 from 127 below top on
//   bits = (t - 512 * (1 + part - 2^part)) / 4, by a table of the seven upper bits of part.
// Relative error 5e-3 at most, 1.73e-3 RMS, where rounding alone has 3.9e-3 and 1.66e-3. 2^0 is 1.
class BfloatExp2 {
public:
    enum class Constants { registers, memory };
    // For so many tops, at most three: takes k4..k7, and for its constants four registers, until it goes.
    BfloatExp2(Emitter& e, int tops, Constants constants = Constants::registers);
    ~BfloatExp2();
    BfloatExp2(const BfloatExp2&) = delete;

    // Jumps where a top is so large that 512 times it has no room for the rest. Before scale_top.
    static void jump_if_large(Emitter& e, const std::vector<Vec>& tops, const Label& large);
    // What emit_scaled needs in the place of a top.
    void scale_top(const Vec& top);
    // t = 512 * score - scaled top, in f32 lanes.
    void emit_scaled(const Vec& t, const Vec& scaled_top, const Address& score);
    // Lane i of d = the numbers of lane i of low, and of high, which belong to top number w. A NaN becomes 0.
    // Clobbers both; d may be low.
    void emit_pairs(const Vec& d, const Vec& low, const Vec& high, int w);
    // sum += both numbers of each lane.
    void add_pairs(const Vec& sum, const Vec& pairs);
    // sum = NaN in lanes that had a NaN of top number w.
    void keep_nan(const Vec& sum, int w);

private:
    static Xbyak::Opmask ordered(int w) { return Xbyak::Opmask(5 + w); }

    // To be had in a register, or as an operand.
    struct Constant {
        std::vector<uint32_t> words;
        Vec held;
    };
    void load(const Vec& v, const Constant& constant);
    template <typename Use>
    void with(const Constant& constant, const Use& use);

    Emitter& e_;
    const bool holds_;
    Constant scale_, order_, low_table_, ones_;
};

}  // namespace quire::jit
