#include "jit/tile_qk_softmax.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>

#include "jit/bfloat_exp2.h"
#include "jit/math.h"
#include "jit/tile_numbers.h"

namespace quire::jit {
namespace {

// QK, and between the products of n keys the exponentials of the n keys before, mostly by pipes that products
// leave idle.
//
// top[w], rescale[w]; total[w] = 0                                             emit_tops
// for key in 0..count step n, k in the n keys before:
//   s[n][w] as TileQk; new_max[w] = max(new_max[w], s[n][w]); scores[key + n][w] = s[n][w]
//   p = exp2(scores[k][w] - top[w]); total[w] += p; scores[k][w] = p           emit_vector
//   or, of two keys, pairs[k / 2][w] in the same memory: both were read        emit_pair
// max[w] = top[w]; sum[w] = sum[w] * rescale[w] + total[w]                     emit_state
class TileQkSoftmax : public TileQkNumbers {
public:
    TileQkSoftmax(const TileKey& key, Products probabilities)
        : TileQkNumbers(key), keys_a_row_(probabilities == Products::bfloats ? 2 : 1) {
        Label fails, end_of_all;
        begin();
        mov(relative_, ptr[args() + offsetof(TileQkArgs, relative)]);
        emit_tops(fails);
        load_arguments();
        mov(count_, ptr[args() + offsetof(TileQkArgs, count)]);
        mov(before_, scores_);
        mov(row_, scores_);
        if (of_pairs()) begin_pairs();
        emit_tile();
        ahead_.end(args() + offsetof(TileQkArgs, ahead));
        emit_state(fails);
        mov(rax, 0);
        jmp(end_of_all, T_NEAR);
        L(fails);
        mov(rax, 1);
        L(end_of_all);
        mov(ptr[relative_ + offsetof(RelativeTops, fails)], rax);
        end();
    }

    // It takes a whole turn at least.
    static bool fits(const TileKey& key) { return key.dim >= kUnroll * key.numbers_a_lane(); }

private:
    bool of_pairs() const { return keys_a_row_ == 2; }
    int rows() const { return n_ / keys_a_row_; }  // of probabilities of n keys
    RegExp vector_at(const Gpr& base, int i) const { return base + i * vec_bytes(); }

    void load(const Gpr& to, size_t member) { mov(to, ptr[relative_ + member]); }

    // top, rescale, new_max = top, total = 0.
    void emit_tops(const Label& fails) {
        stage("tops");
        const Gpr &max = keys_, &rescale = scores_, &new_max = count_;
        load(top_, offsetof(RelativeTops, top));
        load(max, offsetof(RelativeTops, max));
        load(rescale, offsetof(RelativeTops, rescale));
        load(total_, offsetof(RelativeTops, total));
        mov(new_max, ptr[args() + offsetof(TileQkArgs, new_max)]);
        Temp top(*this, "top"), before(*this, "before"), none(*this, "none");
        zero(none);
        const float most = of_pairs() ? kLargestPairTop : std::numeric_limits<float>::max();
        kxorw(k3, k3, k3);
        for (int w = 0; w < vecs_; ++w) {
            vmovups(before, ptr[vector_at(max, w)]);
            if (of_pairs()) {
                vmovups(top, ptr[vector_at(top_, w)]);
                vcmpps(k2, top, before, kUnequal);
                vaddps(*top | k2, before, splat(kHeadroom));
                vsubps(before, before, top);
                emit_exp2(*this, before);
            } else {
                vmovaps(top, before);
                vmovups(before, splat(1.f));
            }
            vmovups(ptr[vector_at(rescale, w)], before);
            vmovups(ptr[vector_at(top_, w)], top);
            vmovups(ptr[vector_at(new_max, w)], top);
            vmovups(ptr[vector_at(total_, w)], none);
            bit_and(before, top, splat_bits(0x7fffffff));
            vcmpps(k2, before, splat(most), kNotLessOrEqual);
            korw(k3, k3, k2);
        }
        kortestw(k3, k3);
        jnz(fails, T_NEAR);
    }

    // max = top; sum = sum * rescale + total.
    void emit_state(const Label& fails) {
        stage("state");
        const Gpr &max = keys_, &rescale = scores_, &new_max = count_, &sum = before_;
        mov(new_max, ptr[args() + offsetof(TileQkArgs, new_max)]);
        load(top_, offsetof(RelativeTops, top));
        load(max, offsetof(RelativeTops, max));
        load(rescale, offsetof(RelativeTops, rescale));
        load(sum, offsetof(RelativeTops, sum));
        Temp top(*this, "top"), of_sum(*this, "sum");
        kxorw(k3, k3, k3);
        for (int w = 0; w < vecs_; ++w) {
            vmovups(top, ptr[vector_at(top_, w)]);
            if (!of_pairs()) vaddps(top, top, splat(kHeadroom));
            vcmpps(k2, top, ptr[vector_at(new_max, w)], kLess);
            korw(k3, k3, k2);
        }
        kortestw(k3, k3);
        jnz(fails, T_NEAR);
        for (int w = 0; w < vecs_; ++w) {
            vmovups(top, ptr[vector_at(top_, w)]);
            vmovups(ptr[vector_at(max, w)], top);
            vmovups(of_sum, ptr[vector_at(sum, w)]);
            vmulps(of_sum, of_sum, ptr[vector_at(rescale, w)]);
            vaddps(of_sum, of_sum, ptr[vector_at(total_, w)]);
            vmovups(ptr[vector_at(sum, w)], of_sum);
        }
    }

    // From here on top_ is of scaled ones.
    void begin_pairs() {
        exp2_ = std::make_unique<BfloatExp2>(*this, vecs_, BfloatExp2::Constants::memory);
        Temp top(*this, "top");
        load(query_, offsetof(RelativeTops, scaled));
        for (int w = 0; w < vecs_; ++w) {
            vmovups(top, ptr[vector_at(top_, w)]);
            exp2_->scale_top(top);
            vmovups(ptr[vector_at(query_, w)], top);
        }
        mov(top_, query_);
    }

    void emit_tile() {
        Label each, last;
        emit_keys([&] { emit_dims(); });
        jz(last, T_NEAR);
        L(each);
        emit_keys([&] { emit_dims_and_rows(); });
        jnz(each, T_NEAR);
        L(last);
        emit_last_rows();
        Temp total(*this, "total");
        for (int w = 0; of_pairs() && w < vecs_; ++w) {
            vmovups(total, ptr[vector_at(total_, w)]);
            exp2_->keep_nan(total, w);
            vmovups(ptr[vector_at(total_, w)], total);
        }
    }

    // Turns are for rows of probabilities first, as many in each as it takes, then for products alone.
    void emit_dims_and_rows() {
        int of_a_turn = 1;
        while (of_a_turn * turns() < rows() || rows() % of_a_turn != 0) ++of_a_turn;
        const int busy = rows() / of_a_turn, vectors = of_a_turn * vecs_;
        emit_turns(busy, [&](int step) {
            for (int i = step * vectors / kUnroll; i < (step + 1) * vectors / kUnroll; ++i) emit_vector(i);
            if (step == kUnroll - 1) next_rows(of_a_turn);
        });
        if (turns() > busy) emit_turns(turns() - busy, [](int) {});
        emit_rest();
    }

    void emit_last_rows() {
        stage("last rows");
        Label each;
        mov(left_, rows());
        L(each);
        for (int i = 0; i < vecs_; ++i) emit_vector(i);
        next_rows(1);
        dec(left_);
        jnz(each, T_NEAR);
    }

    void next_rows(int count) {
        add(row_, count * panel_bytes());
        add(before_, count * keys_a_row_ * panel_bytes());
    }

    // Vector i of the probabilities from row_ on, of the scores from before_ on.
    void emit_vector(int i) {
        const int w = i % vecs_;
        Temp p(*this, "p");
        if (of_pairs()) {
            emit_pair(p, 2 * (i / vecs_) * vecs_ + w, w);
        } else {
            vmovups(p, ptr[vector_at(before_, i)]);
            vsubps(p, p, ptr[vector_at(top_, w)]);
            emit_probability(*this, p);
        }
        vmovups(ptr[vector_at(row_, i)], *p);
        Temp total(*this, "total");
        if (of_pairs()) {
            vmovups(total, ptr[vector_at(total_, w)]);
            exp2_->add_pairs(total, p);
        } else {
            vaddps(total, p, ptr[vector_at(total_, w)]);
        }
        vmovups(ptr[vector_at(total_, w)], *total);
    }

    // Of score vector i, and that of the next key.
    void emit_pair(const Vec& low, int i, int w) {
        Temp high(*this, "high");
        {
            Temp top(*this, "top");
            vmovups(top, ptr[vector_at(top_, w)]);
            exp2_->emit_scaled(low, top, ptr[vector_at(before_, i)]);
            exp2_->emit_scaled(high, top, ptr[vector_at(before_, i + vecs_)]);
        }
        exp2_->emit_pairs(low, low, high, w);
    }

    // Of vcmpps.
    static constexpr uint8_t kLess = 1, kUnequal = 4, kNotLessOrEqual = 6;

    const int keys_a_row_;
    std::unique_ptr<BfloatExp2> exp2_;
    const Gpr top_ = gpr("top"), total_ = gpr("total"), relative_ = gpr("relative"), before_ = gpr("before"),
              row_ = gpr("row");
};

}  // namespace

bool has_tile_qk_softmax(const TileKey& key) {
    if (key.vecs == 1) return false;  // fewer products, which leave less room: no gain
    return key.target->vector_bits == 512 && !(key.bfloats() && key.target->amx) && TileQkSoftmax::fits(key);
}

Status generate_tile_qk_softmax(const TileKey& key, Products probabilities, std::vector<uint8_t>* code) {
    return TileQkSoftmax(key, probabilities).finish(code);
}

}  // namespace quire::jit
