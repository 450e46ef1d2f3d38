#include <cmath>
#include <cstddef>

#include "jit/bfloat_exp2.h"
#include "jit/softmax.h"
#include "jit/softmax_emitter.h"

namespace quire::jit {
namespace {

// Softmax with query rows in the lanes: no step across lanes. w runs over the vectors of the panel.
//
// top[w] = new_max[w], or where something changes scores:
// for key in 0..count:                                                       emit_scores
//   s[w] = soft cap, ALiBi, bias of scores[key][w]; from key `plain` on -Inf outside begin[w]..end[w]
//   scores[key][w] = s; top[w] = max(top[w], s[w])
// rescale[w] = exp2(max[w] - top[w]); max[w] = top[w]                        emit_maximum
//   goes_above: where top[w] is not max[w], after top[w] += kHeadroom
// for key in 0..count: p = exp2(scores[key][w] - top[w]); total[w] += p      emit_exponentials
//   scores[key][w] = p                                                       emit_floats
//   or, of two keys, pairs[key / 2][w] in the same memory: both were read    emit_bfloats
// sum[w] = sum[w] * rescale[w] + total[w]                                    emit_sum
class TileSoftmax : public SoftmaxEmitter {
public:
    explicit TileSoftmax(const TileSoftmaxKey& key)
        : SoftmaxEmitter(*key.target, key.scores),
          tile_(key),
          vecs_(key.vecs),
          top_(vecs("top", key.vecs)),
          odd_(changes_scores() ? vecs("top of odd", key.vecs) : std::vector<Vec>()) {
        begin();
        mov(count_, ptr[args() + offsetof(TileSoftmaxArgs, count)]);
        changes_scores() ? emit_all_scores() : load_top(offsetof(TileSoftmaxArgs, new_max));
        emit_maximum();
        emit_exponentials();
        end();
    }

private:
    int row_bytes() const { return vecs_ * vec_bytes(); }
    RegExp row_constant(const Gpr& base, int w) const { return base + w * vec_bytes(); }

    // body(keys) for left_ keys from score_ on: as many at a time as `step`, while there are.
    template <typename Body>
    void for_keys(int step, const Body& body) {
        Label single, done;
        for (int keys = step; keys > 0; keys = keys > 1 ? 1 : 0) {
            Label each;
            if (keys == 1) L(single);
            L(each);
            cmp(left_, keys);
            jl(keys > 1 ? single : done, T_NEAR);
            body(keys);
            add(score_, keys * row_bytes());
            sub(left_, keys);
            jmp(each, T_NEAR);
        }
        L(done);
    }

    bool changes_scores() const { return tile_.masked || key_.bias || key_.alibi || key_.soft_cap; }

    void load_top(size_t from) {
        const Gpr max = gpr("max");
        mov(max, ptr[args() + from]);
        for (int w = 0; w < vecs_; ++w) vmovups(top_[size_t(w)], ptr[row_constant(max, w)]);
        free(max);
    }

    void emit_all_scores() {
        mov(begin_, ptr[args() + offsetof(TileSoftmaxArgs, begin)]);
        mov(end_, ptr[args() + offsetof(TileSoftmaxArgs, end)]);
        mov(slope_, ptr[args() + offsetof(TileSoftmaxArgs, slope)]);
        mov(distance_, ptr[args() + offsetof(TileSoftmaxArgs, distance)]);
        if (key_.bias) mov(bias_, ptr[args() + offsetof(TileSoftmaxArgs, bias)]);
        load_top(offsetof(TileSoftmaxArgs, max));
        for (const Vec& v : odd_) vmovups(v, splat(-INFINITY));
        Temp index(*this, "index");
        zero(index);
        mov(score_, ptr[args() + offsetof(TileSoftmaxArgs, scores)]);
        mov(left_, count_);
        if (tile_.masked) mov(left_, ptr[args() + offsetof(TileSoftmaxArgs, plain)]);
        emit_scores(index, false);
        if (tile_.masked) {
            mov(left_, count_);
            sub(left_, ptr[args() + offsetof(TileSoftmaxArgs, plain)]);
            emit_scores(index, true);
        }
        for (int w = 0; w < vecs_; ++w) vmaxps(top_[size_t(w)], odd_[size_t(w)], top_[size_t(w)]);
        free(odd_);
    }

    // Of left_ keys.
    void emit_scores(const Vec& index, bool masked) {
        stage(masked ? "masked scores" : "scores");
        for_keys(masked || key_.alibi || key_.soft_cap ? 1 : kPlainKeys, [&](int keys) {
            for (int i = 0; i < keys * vecs_; ++i) emit_score(i, index, masked);
            if (key_.bias) add(bias_, keys * row_bytes());
            if (!tile_.masked && !key_.alibi) return;
            for (int i = 0; i < keys; ++i) vpaddd(index, index, splat_bits(1));
        });
    }

    // Vector i from score_ on.
    void emit_score(int i, const Vec& index, bool masked) {
        const int w = i % vecs_;
        Temp score(*this, "score");
        vmovups(score, ptr[row_constant(score_, i)]);
        emit_soft_cap(score, args() + offsetof(TileSoftmaxArgs, cap));
        if (key_.alibi) {
            Temp away(*this, "away"), factor(*this, "factor");
            vcvtdq2ps(away, index);
            vaddps(away, away, ptr[row_constant(distance_, w)]);
            vmovups(factor, ptr[row_constant(slope_, w)]);
            vfmadd231ps(score, away, factor);
        }
        emit_bias(score, row_constant(bias_, i));
        if (masked)
            keep_in_range(score, index, ptr[row_constant(begin_, w)], ptr[row_constant(end_, w)],
                          splat(-INFINITY));
        if (masked || key_.bias || key_.alibi || key_.soft_cap) vmovups(ptr[row_constant(score_, i)], *score);
        const Vec& top = (i / vecs_ % 2 == 0 ? top_ : odd_)[size_t(w)];
        vmaxps(top, score, top);  // a NaN score leaves it as it is
    }

    void emit_maximum() {
        stage("maximum");
        const Gpr max = gpr("max"), rescale = gpr("rescale");
        mov(max, ptr[args() + offsetof(TileSoftmaxArgs, max)]);
        mov(rescale, ptr[args() + offsetof(TileSoftmaxArgs, rescale)]);
        for (int w = 0; w < vecs_; ++w) {
            Temp before(*this, "before");
            vmovups(before, ptr[row_constant(max, w)]);
            if (tile_.goes_above) {
                constexpr uint8_t kUnequal = 4;
                vcmpps(k2, top_[size_t(w)], before, kUnequal);
                vaddps(top_[size_t(w)] | k2, top_[size_t(w)], splat(kHeadroom));
            }
            vmovups(ptr[row_constant(max, w)], top_[size_t(w)]);
            emit_finite(top_[size_t(w)], top_[size_t(w)]);
            vsubps(before, before, top_[size_t(w)]);
            emit_exp2(*this, before);
            vmovups(ptr[row_constant(rescale, w)], *before);
        }
        free(max);
        free(rescale);
    }

    Exp2 near() const {
        switch (tile_.probabilities) {
            case Products::words: return Exp2::word;
            case Products::bytes:
            case Products::bfloats: return Exp2::bfloat;
            default: return Exp2::probability;
        }
    }

    // score -= top. The steps of exp2 around its polynomial are for the pipes of sums (Zen: two, beside two
    // of products): where the polynomial is short, a product with one is sooner done.
    void subtract_top(const Vec& score, const Vec& top, Exp2 near) {
        const bool is_short = near == Exp2::word || near == Exp2::bfloat;
        is_short ? vfmsub132ps(score, top, splat(1.f)) : vsubps(score, score, top);
    }

    void emit_exponentials() {
        stage("exponentials");
        const std::vector<Vec> total = vecs("total", vecs_);
        for (const Vec& v : total) zero(v);
        mov(score_, ptr[args() + offsetof(TileSoftmaxArgs, scores)]);
        mov(left_, count_);
        Label large, done;
        if (tile_.bfloats()) {
            mov(pairs_, score_);
            BfloatExp2::jump_if_large(*this, top_, large);
            emit_bfloats(total);
            jmp(done, T_NEAR);
            L(large);
        }
        emit_floats(total);
        L(done);
        emit_sum(total);
        free(total);
    }

    void emit_floats(const std::vector<Vec>& total) {
        // Three registers for each exponential, and one for a pair.
        const int together = 8 * vecs_ + 1 <= num_vecs() ? 2 : 1;
        hold_exp2(*this, near(), 3 * together * vecs_ + 1);
        for_keys(together, [&](int keys) {
            const std::vector<Vec> p = vecs("p", keys * vecs_);
            for (int i = 0; i < keys * vecs_; ++i) {
                vmovups(p[size_t(i)], ptr[row_constant(score_, i)]);
                subtract_top(p[size_t(i)], top_[size_t(i % vecs_)], near());
            }
            emit_exp2(*this, p, near());
            for (int i = 0; i < keys * vecs_; ++i) {
                vaddps(total[size_t(i % vecs_)], total[size_t(i % vecs_)], p[size_t(i)]);
                if (!tile_.bfloats()) vmovups(ptr[row_constant(score_, i)], p[size_t(i)]);
            }
            if (tile_.bfloats() && keys == 2) emit_pairs(p);
            free(p);
        });
        drop_held();
    }

    void emit_pairs(const std::vector<Vec>& p) {
        for (int w = 0; w < vecs_; ++w) {
            const Vec &first = p[size_t(w)], &second = p[size_t(vecs_ + w)];
            pair_bfloats(first, first, second);
            vmovups(ptr[row_constant(pairs_, w)], first);
        }
        add(pairs_, row_bytes());
    }

    // The same in lanes of 16 bits. The total is of what was rounded.
    void emit_bfloats(const std::vector<Vec>& total) {
        stage("bfloats");
        BfloatExp2 exp2(*this, vecs_);
        for (const Vec& top : top_) exp2.scale_top(top);
        Label each;
        L(each);
        const std::vector<Vec> p = vecs("p", 2 * vecs_);
        for (int i = 0; i < 2 * vecs_; ++i)
            exp2.emit_scaled(p[size_t(i)], top_[size_t(i % vecs_)], ptr[row_constant(score_, i)]);
        for (int w = 0; w < vecs_; ++w) {
            const Vec& pair = p[size_t(w)];
            exp2.emit_pairs(pair, pair, p[size_t(vecs_ + w)], w);
            exp2.add_pairs(total[size_t(w)], pair);
            vmovups(ptr[row_constant(pairs_, w)], pair);
        }
        free(p);
        add(pairs_, row_bytes());
        add(score_, 2 * row_bytes());
        sub(left_, 2);
        jnz(each, T_NEAR);
        for (int w = 0; w < vecs_; ++w) exp2.keep_nan(total[size_t(w)], w);
    }

    void emit_sum(const std::vector<Vec>& total) {
        stage("sum");
        const Gpr sum = gpr("sum"), rescale = gpr("rescale");
        mov(sum, ptr[args() + offsetof(TileSoftmaxArgs, sum)]);
        mov(rescale, ptr[args() + offsetof(TileSoftmaxArgs, rescale)]);
        for (int w = 0; w < vecs_; ++w) {
            Temp before(*this, "before");
            vmovups(before, ptr[row_constant(sum, w)]);
            vmulps(before, before, ptr[row_constant(rescale, w)]);
            vaddps(before, before, total[size_t(w)]);
            vmovups(ptr[row_constant(sum, w)], *before);
        }
        free(sum);
        free(rescale);
    }

    static constexpr int kPlainKeys = 4;

    const TileSoftmaxKey tile_;
    const int vecs_;
    const std::vector<Vec> top_, odd_;  // odd: of every second key, where several are taken at a time
    const Gpr count_ = gpr("count"), score_ = gpr("score"), left_ = gpr("left"), begin_ = gpr("begin"),
              end_ = gpr("end"), slope_ = gpr("slope"), distance_ = gpr("distance"), bias_ = gpr("bias");
    const Gpr& pairs_ = begin_;  // of no more use then
};

}  // namespace

Status generate_tile_softmax(const TileSoftmaxKey& key, std::vector<uint8_t>* code) {
    return TileSoftmax(key).finish(code);
}

}  // namespace quire::jit
