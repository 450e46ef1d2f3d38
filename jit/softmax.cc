#include "jit/softmax.h"

#include <cmath>
#include <cstddef>

#include "jit/softmax_emitter.h"

namespace quire::jit {
namespace {

// for row in 0..rows:                                                        emit_maxima
//   top = max[row], of the block alone -Inf
//   for key in 0..count step L:                                              emit_scores
//     s = soft cap, ALiBi, bias of scores[row][key ..]; -Inf outside bounds[row]
//     scores[row][key ..] = s; top = max(top, s)
//     (a plain row that sees the whole block: only top)                      emit_plain_scores
//   rescale[row] = exp2(max[row] - top); max[row] = top                      emit_maximum
//   (of the block: block[row] = top, and, with max[row] taken into top,
//    exp2(block[row] - top))                                                 emit_block_maximum
// for row in 0..rows:
//   for key in 0..count step L:                                              emit_exponentials
//     p = exp2(s - max[row], or block[row]); scores[row][key ..] = p; total += p
//   sum[row] = sum[row] * rescale[row] + total                               emit_sum
//
// Two loops, because a maximum across lanes is a long chain, on which all exponentials of its row wait: those
// of all rows go on side by side.
class Softmax : public SoftmaxEmitter {
public:
    explicit Softmax(const SoftmaxKey& key)
        : SoftmaxEmitter(*key.target, key.scores), of_block_(key.of_block) {
        begin();
        mov(count_, ptr[args() + offsetof(SoftmaxArgs, count)]);
        for_each_row([&] { emit_maxima(); });
        hold_exp2(*this, Exp2::probability, 3 * kTogether);
        for_each_row([&] {
            broadcast(top_, ptr[of_block_ ? block_ : max_]);
            emit_finite(top_, top_);
            emit_exponentials();
            emit_sum();
        });
        drop_held();
        end();
    }

private:
    template <typename Body>
    void for_each_row(const Body& body) {
        mov(scores_, ptr[args() + offsetof(SoftmaxArgs, scores)]);
        if (key_.bias) mov(bias_, ptr[args() + offsetof(SoftmaxArgs, bias)]);
        mov(bounds_, ptr[args() + offsetof(SoftmaxArgs, bounds)]);
        mov(max_, ptr[args() + offsetof(SoftmaxArgs, max)]);
        mov(sum_, ptr[args() + offsetof(SoftmaxArgs, sum)]);
        mov(rescale_, ptr[args() + offsetof(SoftmaxArgs, rescale)]);
        if (of_block_) mov(block_, ptr[args() + offsetof(SoftmaxArgs, block)]);
        mov(rows_, ptr[args() + offsetof(SoftmaxArgs, rows)]);
        Label each_row;
        L(each_row);
        body();
        add(scores_, kBlock * 4);
        if (key_.bias) add(bias_, kBlock * 4);
        add(bounds_, int(sizeof(RowBounds)));
        for (const Gpr& r : {max_, sum_, rescale_}) add(r, 4);
        if (of_block_) add(block_, 8);
        dec(rows_);
        jnz(each_row, T_NEAR);
    }

    void emit_maxima() {
        of_block_ ? vmovups(top_, splat(-INFINITY)) : broadcast(top_, ptr[max_]);
        Label masked, scored;
        if (!key_.bias && !key_.alibi && !key_.soft_cap) {
            cmp(dword[bounds_ + offsetof(RowBounds, begin)], 0);
            jne(masked);
            cmp(dword[bounds_ + offsetof(RowBounds, end)], Xbyak::Reg32(count_.getIdx()));
            jne(masked);
            emit_plain_scores();
            jmp(scored, T_NEAR);
        }
        L(masked);
        emit_scores();
        L(scored);
        fold(Fold::max, top_);
        of_block_ ? emit_block_maximum() : emit_maximum();
    }

    template <typename Body>
    void for_each_vector(const Body& body) {
        Label each;
        xor_(key_index_, key_index_);
        L(each);
        body();
        add(key_index_, lanes());
        cmp(key_index_, count_);
        jl(each, T_NEAR);
    }

    // body(vectors): as many at a time as kTogether, while there are.
    template <typename Body>
    void for_each_vectors(const Body& body) {
        Label several, single, done;
        xor_(key_index_, key_index_);
        for (const int vectors : {kTogether, 1}) {
            Label& each = vectors == 1 ? single : several;
            L(each);
            lea(rax, ptr[key_index_ + vectors * lanes()]);
            cmp(rax, count_);
            jg(vectors == 1 ? done : single, T_NEAR);
            body(vectors);
            add(key_index_, vectors * lanes());
            jmp(each, T_NEAR);
        }
        L(done);
    }

    void emit_plain_scores() {
        stage("plain scores");
        for_each_vectors([&](int vectors) {
            for (int i = 0; i < vectors; ++i) {
                Temp score(*this, "score");
                vmovups(score, ptr[scores_at(i)]);
                vmaxps(top_, score, top_);  // a NaN score leaves top_ as it is
            }
        });
    }

    RegExp scores_at(int vector) const { return scores_ + key_index_ * 4 + vector * vec_bytes(); }

    void emit_scores() {
        stage("scores");
        Temp index(*this, "index"), begin(*this, "begin"), end(*this, "end"), lowest(*this, "-inf");
        std::vector<uint32_t> iota;
        for (int i = 0; i < lanes(); ++i) iota.push_back(uint32_t(i));
        vmovups(index, constant(iota));
        vpbroadcastd(begin, ptr[bounds_ + offsetof(RowBounds, begin)]);
        vpbroadcastd(end, ptr[bounds_ + offsetof(RowBounds, end)]);
        vmovups(lowest, splat(-INFINITY));
        for_each_vector([&] {
            Temp score(*this, "score");
            vmovups(score, ptr[scores_ + key_index_ * 4]);
            emit_soft_cap(score, args() + offsetof(SoftmaxArgs, cap));
            if (key_.alibi) emit_alibi(score, index);
            emit_bias(score, bias_ + key_index_ * 4);
            keep_in_range(score, index, begin, end, lowest);
            vmovups(ptr[scores_ + key_index_ * 4], *score);
            vmaxps(top_, score, top_);  // a NaN score leaves top_ as it is
            vpaddd(index, index, splat_bits(uint32_t(lanes())));
        });
    }

    // The distance is a whole number and exact; one rounding when it is scaled.
    void emit_alibi(const Vec& score, const Vec& index) {
        stage("alibi");
        Temp distance(*this, "distance"), factor(*this, "factor");
        vcvtdq2ps(distance, index);
        broadcast(factor, ptr[bounds_ + offsetof(RowBounds, distance)]);
        vaddps(distance, distance, factor);
        broadcast(factor, ptr[bounds_ + offsetof(RowBounds, slope)]);
        vfmadd231ps(score, distance, factor);
    }

    void emit_maximum() {
        stage("maximum");
        Temp before(*this, "before");
        broadcast(before, ptr[max_]);
        vmovss(ptr[max_], Xbyak::Xmm(top_.getIdx()));
        emit_finite(top_, top_);
        vsubps(before, before, top_);
        emit_exp2(*this, before);
        vmovss(ptr[rescale_], Xbyak::Xmm((*before).getIdx()));
    }

    void emit_block_maximum() {
        stage("maximum");
        const std::vector<Vec> moved = vecs("before, block", 2);
        vmovss(ptr[block_], Xbyak::Xmm(top_.getIdx()));
        emit_finite(moved[1], top_);
        broadcast(moved[0], ptr[max_]);
        vmaxps(top_, moved[0], top_);
        vmovss(ptr[max_], Xbyak::Xmm(top_.getIdx()));
        emit_finite(top_, top_);
        for (const Vec& v : moved) vsubps(v, v, top_);
        emit_exp2(*this, moved);
        vmovss(ptr[rescale_], Xbyak::Xmm(moved[0].getIdx()));
        vmovss(ptr[block_ + 4], Xbyak::Xmm(moved[1].getIdx()));
        free(moved);
    }

    void emit_exponentials() {
        stage("exponentials");
        zero(total_);
        for_each_vectors([&](int vectors) {
            const std::vector<Vec> p = vecs("p", vectors);
            for (int i = 0; i < vectors; ++i) {
                vmovups(p[size_t(i)], ptr[scores_at(i)]);
                vsubps(p[size_t(i)], p[size_t(i)], top_);
            }
            emit_exp2(*this, p, Exp2::probability);
            for (int i = 0; i < vectors; ++i) {
                vmovups(ptr[scores_at(i)], p[size_t(i)]);
                vaddps(total_, total_, p[size_t(i)]);
            }
            free(p);
        });
    }

    void emit_sum() {
        stage("sum");
        fold(Fold::sum, total_);
        const Xbyak::Xmm total(total_.getIdx());
        Temp before(*this, "before");
        const Xbyak::Xmm x((*before).getIdx());
        vmovss(x, ptr[sum_]);
        vmulss(x, x, ptr[rescale_]);
        if (of_block_) vmulss(total, total, ptr[block_ + 4]);
        vaddss(total, total, x);
        vmovss(ptr[sum_], total);
    }

    static constexpr int kTogether = 4;  // AVX2: 12 registers in emit_exp2

    const bool of_block_;
    const Gpr scores_ = gpr("scores"), bias_ = gpr("bias"), bounds_ = gpr("bounds"), max_ = gpr("max"),
              sum_ = gpr("sum"), rescale_ = gpr("rescale"), rows_ = gpr("rows"), count_ = gpr("count"),
              key_index_ = gpr("key index"), block_ = gpr("block");
    const Vec top_ = vec("top"), total_ = vec("total");
};

}  // namespace

Status generate_softmax(const SoftmaxKey& key, std::vector<uint8_t>* code) {
    return Softmax(key).finish(code);
}

}  // namespace quire::jit
