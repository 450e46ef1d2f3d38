#include "jit/token_weights.h"

#include <cstddef>

#include "jit/weights_emitter.h"

namespace quire::jit {
namespace {

// for each block: out[block][g][16] = float(scales of the block[g][16])
class TokenScales : public Emitter {
public:
    explicit TokenScales(const RowKey& key) : Emitter(*key.target) {
        begin();
        const Gpr blocks = gpr("blocks"), out = gpr("out"), count = gpr("count"), from = gpr("scales"),
                  groups = gpr("groups left");
        mov(blocks, ptr[args() + offsetof(ScalesArgs, rows)]);
        mov(out, ptr[args() + offsetof(ScalesArgs, out)]);
        mov(count, ptr[args() + offsetof(ScalesArgs, count)]);
        Label each_block, each_group;
        L(each_block);
        mov(from, ptr[blocks]);
        add(from, token_block_info(key.format.type)->code_bytes(key.dim));
        mov(groups, key.groups());
        L(each_group);
        for (int t = 0; t < kBlockTokens; t += lanes()) {
            Temp scale(*this, "scale");
            vcvtph2ps(scale, ptr[from + t * 2]);
            vmovups(ptr[out + t * 4], *scale);
        }
        add(from, kBlockTokens * 2);
        add(out, kBlockTokens * 4);
        dec(groups);
        jnz(each_group, T_NEAR);
        add(blocks, 8 * kBlockTokens);
        sub(count, kBlockTokens);
        jnz(each_block, T_NEAR);
        end();
    }
};

// The lanes are tokens. As numbers:
//   for each group g, each block, for r: weights[r][g][key] = p[r][key] * scale[block][g][key]
// As words (of products: as jit/weights.cc):
//   for each group g:                                                           emit_group
//     top = max over keys of |scale[key][g]|; NaN if one of them is             emit_top
//     for each block, for r: weights[r][g][key] = round(p[r][key] * (scale * 32767 / top))
//     factors[r][g] = top / 32767 * the row's of the block                      emit_factors
class TokenWeights : public WeightsEmitter {
public:
    explicit TokenWeights(const RowKey& key)
        : WeightsEmitter(key), vecs_(kBlockTokens / lanes()), bytes_(of_words() ? 2 : 4) {
        begin();
        if (of_products()) round_probabilities();
        mov(group_scales_, ptr[args() + offsetof(WeightsArgs, scales)]);
        mov(group_weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        mov(factors_, ptr[args() + offsetof(WeightsArgs, factors)]);
        mov(groups_, key_.groups());
        Label each_group;
        L(each_group);
        emit_group();
        add(group_scales_, kBlockTokens * 4);
        add(group_weights_, kBlock * bytes_);
        add(factors_, 4);
        dec(groups_);
        jnz(each_group, T_NEAR);
        end();
    }

private:
    // All blocks of the group.
    template <typename Body>
    void for_each_block(const Body& body) {
        mov(scales_, group_scales_);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(scales_, key_.groups() * kBlockTokens * 4);
        sub(count_, kBlockTokens);
        jnz(each, T_NEAR);
    }

    void emit_group() {
        stage("group");
        Temp top(*this, "top"), inverse(*this, "inverse");
        if (of_words()) {
            emit_top(top, inverse);
            emit_inverse(inverse, top);
        }
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(weights_, group_weights_);
        for_each_block([&] {
            const std::vector<Vec> scale = vecs("scale", vecs_);
            for (int v = 0; v < vecs_; ++v) {
                const Vec& s = scale[size_t(v)];
                of_words() ? vmulps(s, inverse, ptr[scales_ + v * vec_bytes()])
                           : vmovups(s, ptr[scales_ + v * vec_bytes()]);
            }
            if (of_products()) emit_words(scale);
            for (int r = 0; r < key_.rows; ++r)
                of_products() ? emit_products(scale[0], r) : emit_weights(scale, r);
            free(scale);
            add(probabilities_, kBlockTokens * probability_bytes());
            add(weights_, kBlockTokens * bytes_);
        });
        if (of_words()) emit_factors(top);
    }

    RegExp weights_of(int r) const { return weights_ + r * weight_row_bytes(key_.groups() * bytes_); }

    void emit_weights(const std::vector<Vec>& scale, int r) {
        const std::vector<Vec> weight = vecs("weight", vecs_);
        const RegExp at = weights_of(r);
        for (int v = 0; v < vecs_; ++v) {
            const Vec& w = weight[size_t(v)];
            vmulps(w, scale[size_t(v)], ptr[row_at(r) + v * vec_bytes()]);
            key_.words() ? vcvtps2dq(w, w) : vmovups(ptr[at + v * vec_bytes()], w);
        }
        if (key_.words()) store_words(at, weight);
        free(weight);
    }

    // The scales of a block's tokens as words, in the first.
    void emit_words(const std::vector<Vec>& scale) {
        for (const Vec& s : scale) vcvtps2dq(s, s);
        words_of(scale);
    }
    void emit_products(const Vec& scale, int r) {
        Temp weight(*this, "weight");
        const Xbyak::Ymm w((*weight).getIdx());
        vpmulhrsw(w, Xbyak::Ymm(scale.getIdx()), ptr[row_at(r)]);
        vmovups(ptr[weights_of(r)], w);
    }

    // As integers, bits of larger magnitudes are larger, and those of NaN the largest.
    void emit_top(const Vec& top, const Vec& magnitude) {
        vmovups(top, splat(kLeastTop));
        Temp mask(*this, "mask");
        vmovups(mask, splat_bits(0x7fffffff));
        for_each_block([&] {
            for (int v = 0; v < vecs_; ++v) {
                vandps(magnitude, mask, ptr[scales_ + v * vec_bytes()]);
                vpmaxsd(top, top, magnitude);
            }
        });
        for (int distance = 1; distance < lanes(); distance *= 2) {
            swap_lanes(magnitude, top, distance);
            vpmaxsd(top, top, magnitude);
        }
    }

    void emit_factors(const Vec& top) {
        for (int r = 0; r < key_.rows; ++r) {
            Temp factor(*this, "factor");
            emit_factor(factor, top, r);
            vmovss(ptr[factors_ + r * key_.groups() * 4], Xbyak::Xmm((*factor).getIdx()));
        }
    }

    const int vecs_, bytes_;  // vectors of a block's tokens; bytes of a weight
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), factors_ = gpr("factors"),
              group_scales_ = gpr("scales of the group"), group_weights_ = gpr("weights of the group"),
              groups_ = gpr("groups left");
};

}  // namespace

bool token_weights_fold(const RowKey& values) {
    if (values.words() || values.bytes() || values.rows == 1) return true;
    return scale_group(values.format) >= 2 * values.target->lanes();
}

Status generate_token_scales(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenScales(key).finish(code);
}
Status generate_token_weights(const RowKey& values, std::vector<uint8_t>* code) {
    return TokenWeights(values).finish(code);
}

}  // namespace quire::jit
