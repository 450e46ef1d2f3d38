#include "jit/softmax.h"

#include <cmath>
#include <cstddef>

#include "jit/softmax_emitter.h"

namespace quire::jit {
namespace {

// for row in 0..rows:                                                        emit_top
//   top = max[row], of the block alone -Inf
//   for key in 0..count step L:                                              emit_scores
//     s = soft cap, ALiBi, bias of scores[row][key ..]; -Inf outside bounds[row]
//     scores[row][key ..] = s; top = max(top, s)
//     (a plain row that sees the whole block: only top)                      emit_plain_scores
//   tops[row] = top
// for row in 0..rows:                                                        emit_exponentials
//   for key in 0..count step L:
//     p = exp2(s - tops[row]); scores[row][key ..] = p; totals[row] += p
// for row in 0..rows step L:                                                 emit_rows
//   rescale[row] = exp2(max[row] - max(max[row], tops[row])); max[row] = that maximum
//   (of the block: block[row] = exp2(tops[row] - max[row]))
//   sum[row] = sum[row] * rescale[row] + totals[row] (* block[row])
//
// Two loops, because a maximum across lanes is a long chain, on which all exponentials of its row wait: those
// of all rows go on side by side.
class Softmax : public SoftmaxEmitter {
public:
    explicit Softmax(const SoftmaxKey& key)
        : SoftmaxEmitter(*key.target, key.scores), of_block_(key.of_block) {
        begin();
        mov(count_, ptr[args() + offsetof(SoftmaxArgs, count)]);
        for_each_row([&] { emit_top(); });
        hold_exp2(*this, near(), 3 * kTogether);
        for_each_row([&] { emit_exponentials(); });
        drop_held();
        for_each_vector_of_rows([&] { emit_rows(); });
        end();
    }

private:
    // Words have no more than 15 bits.
    Exp2 near() const { return of_block_ ? Exp2::word : Exp2::probability; }

    template <typename Body>
    void for_each_row(const Body& body) {
        mov(scores_, ptr[args() + offsetof(SoftmaxArgs, scores)]);
        if (key_.bias) mov(bias_, ptr[args() + offsetof(SoftmaxArgs, bias)]);
        mov(bounds_, ptr[args() + offsetof(SoftmaxArgs, bounds)]);
        begin_rows();
        Label each_row;
        L(each_row);
        body();
        add(scores_, kBlock * 4);
        if (key_.bias) add(bias_, kBlock * 4);
        add(bounds_, int(sizeof(RowBounds)));
        move_rows(1);
        dec(rows_);
        jnz(each_row, T_NEAR);
    }

    template <typename Body>
    void for_each_vector_of_rows(const Body& body) {
        begin_rows();
        Label each;
        L(each);
        body();
        move_rows(lanes());
        sub(rows_, lanes());
        jg(each, T_NEAR);
    }

    void begin_rows() {
        mov(rows_, ptr[args() + offsetof(SoftmaxArgs, rows)]);
        mov(max_, ptr[args() + offsetof(SoftmaxArgs, max)]);
        mov(sum_, ptr[args() + offsetof(SoftmaxArgs, sum)]);
        mov(rescale_, ptr[args() + offsetof(SoftmaxArgs, rescale)]);
        mov(tops_, ptr[args() + offsetof(SoftmaxArgs, tops)]);
        mov(totals_, ptr[args() + offsetof(SoftmaxArgs, totals)]);
        if (of_block_) mov(block_, ptr[args() + offsetof(SoftmaxArgs, block)]);
    }
    void move_rows(int rows) {
        for (const Gpr& r : {max_, sum_, rescale_, tops_, totals_}) add(r, rows * 4);
        if (of_block_) add(block_, rows * 4);
    }

    void emit_top() {
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
        fold_to_first(Fold::max, top_);
        vmovss(ptr[tops_], Xbyak::Xmm(top_.getIdx()));
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

    void emit_exponentials() {
        stage("exponentials");
        broadcast(top_, ptr[tops_]);
        emit_finite(top_, top_);
        zero(total_);
        for_each_vectors([&](int vectors) {
            const std::vector<Vec> p = vecs("p", vectors);
            for (int i = 0; i < vectors; ++i) {
                vmovups(p[size_t(i)], ptr[scores_at(i)]);
                vsubps(p[size_t(i)], p[size_t(i)], top_);
            }
            emit_exp2(*this, p, near());
            for (int i = 0; i < vectors; ++i) {
                vmovups(ptr[scores_at(i)], p[size_t(i)]);
                vaddps(total_, total_, p[size_t(i)]);
            }
            free(p);
        });
        fold_to_first(Fold::sum, total_);
        vmovss(ptr[totals_], Xbyak::Xmm(total_.getIdx()));
    }

    void emit_rows() {
        stage("rows");
        const std::vector<Vec> x = vecs("before, block", of_block_ ? 2 : 1);
        vmovups(x[0], ptr[max_]);
        vmovups(top_, ptr[tops_]);
        if (of_block_) {
            emit_finite(x[1], top_);
            vmaxps(top_, x[0], top_);
        }
        vmovups(ptr[max_], top_);
        emit_finite(top_, top_);
        for (const Vec& v : x) vsubps(v, v, top_);
        emit_exp2(*this, x);
        vmovups(ptr[rescale_], x[0]);
        vmulps(x[0], x[0], ptr[sum_]);
        vmovups(total_, ptr[totals_]);
        if (of_block_) {
            vmovups(ptr[block_], x[1]);
            vmulps(total_, total_, x[1]);
        }
        vaddps(total_, total_, x[0]);
        vmovups(ptr[sum_], total_);
        free(x);
    }

    static constexpr int kTogether = 4;  // AVX2: 12 registers in emit_exp2

    const bool of_block_;
    const Gpr scores_ = gpr("scores"), bias_ = gpr("bias"), bounds_ = gpr("bounds"), max_ = gpr("max"),
              sum_ = gpr("sum"), rescale_ = gpr("rescale"), rows_ = gpr("rows"), count_ = gpr("count"),
              key_index_ = gpr("key index"), block_ = gpr("block"), tops_ = gpr("tops"),
              totals_ = gpr("totals");
    const Vec top_ = vec("top"), total_ = vec("total");
};

}  // namespace

Status generate_softmax(const SoftmaxKey& key, std::vector<uint8_t>* code) {
    return Softmax(key).finish(code);
}

}  // namespace quire::jit
