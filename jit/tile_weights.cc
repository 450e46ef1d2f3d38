#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"
#include "jit/tile_words.h"

namespace quire::jit {
namespace {

// top[w] = largest probability of each lane;  factors[w] = top[w] / 32767
// for each pair of keys, for each group g:
//   weights[g][pair][w] = round(p[key][w] * 32767 / top[w] * scales[key][g]), of both keys
class TileWeights : public Emitter {
public:
    explicit TileWeights(const RowKey& key)
        : Emitter(*key.target), key_(key), inverse_(vecs("inverse", key.rows)) {
        begin();
        mov(probabilities_, ptr[args() + offsetof(TileWeightsArgs, probabilities)]);
        mov(count_, ptr[args() + offsetof(TileWeightsArgs, count)]);
        emit_tops();
        mov(probabilities_, ptr[args() + offsetof(TileWeightsArgs, probabilities)]);
        mov(scales_, ptr[args() + offsetof(TileWeightsArgs, scales)]);
        mov(weights_, ptr[args() + offsetof(TileWeightsArgs, weights)]);
        mov(count_, ptr[args() + offsetof(TileWeightsArgs, count)]);
        Label each;
        L(each);
        emit_pair();
        add(probabilities_, 2 * panel_bytes());
        add(scales_, 2 * key_.scales_stride() * 4);
        add(weights_, panel_bytes());
        sub(count_, 2);
        jnz(each, T_NEAR);
        end();
    }

private:
    int panel_bytes() const { return key_.rows * vec_bytes(); }

    void emit_tops() {
        stage("tops");
        for (const Vec& top : inverse_) vmovups(top, splat(kLeastTop));
        Label each;
        L(each);
        for (int i = 0; i < 2 * key_.rows; ++i) {
            const Vec& top = inverse_[size_t(i % key_.rows)];
            vmaxps(top, top, ptr[probabilities_ + i * vec_bytes()]);
        }
        add(probabilities_, 2 * panel_bytes());
        sub(count_, 2);
        jnz(each, T_NEAR);
        mov(factors_, ptr[args() + offsetof(TileWeightsArgs, factors)]);
        Temp factor(*this, "factor");
        for (int w = 0; w < key_.rows; ++w) {
            vmulps(factor, inverse_[size_t(w)], splat(1 / kLargestWord));
            vmovups(ptr[factors_ + w * vec_bytes()], *factor);
            vmovups(factor, splat(kLargestWord));
            vdivps(inverse_[size_t(w)], factor, inverse_[size_t(w)]);
        }
    }

    void emit_pair() {
        const std::vector<Vec> p = vecs("p", 2 * key_.rows);
        for (int i = 0; i < 2 * key_.rows; ++i)
            vmulps(p[size_t(i)], inverse_[size_t(i % key_.rows)], ptr[probabilities_ + i * vec_bytes()]);
        for (int g = 0; g < key_.groups(); ++g) {
            stage("group " + std::to_string(g));
            Temp first(*this, "first scale"), second(*this, "second scale");
            broadcast(first, ptr[scales_ + g * 4]);
            broadcast(second, ptr[scales_ + (key_.scales_stride() + g) * 4]);
            for (int w = 0; w < key_.rows; ++w) {
                Temp low(*this, "low"), high(*this, "high");
                vmulps(low, first, p[size_t(w)]);
                vmulps(high, second, p[size_t(key_.rows + w)]);
                vcvtps2dq(low, low);
                vcvtps2dq(high, high);
                join_words(low, low, high);
                vmovups(ptr[weights_ + g * tile_weight_stride(key_.rows * lanes()) * 4 + w * vec_bytes()],
                        *low);
            }
        }
        free(p);
    }

    const RowKey key_;
    const std::vector<Vec> inverse_;
    const Gpr probabilities_ = gpr("probabilities"), scales_ = gpr("scales"), weights_ = gpr("weights"),
              count_ = gpr("count"), factors_ = gpr("factors");
};

// for each run of keys (words: of all):
//   for each vector of groups, or of the groups of as many keys as fit it:
//     top = max over keys of |scale[key][g]|; NaN if one of them is
//     scale[key][g] *= 1 / top;  tops[run][g] = top
//     (bytes: scale[key][g] = words of both, of each two keys)                   emit_words
class TileScales : public Emitter {
public:
    explicit TileScales(const RowKey& key) : Emitter(*key.target), key_(key) {
        begin();
        mov(tops_, ptr[args() + offsetof(TileScalesArgs, tops)]);
        mov(run_, ptr[args() + offsetof(TileScalesArgs, scales)]);
        mov(left_, ptr[args() + offsetof(TileScalesArgs, count)]);
        Label each;
        L(each);
        for (int g = 0; g < key_.groups(); g += lanes()) emit_groups(g);
        if (key_.bytes()) {
            add(tops_, key_.groups() * 4);
            add(run_, kWeightRun * stride() * 4);
            sub(left_, kWeightRun);
            jnz(each, T_NEAR);
        }
        end();
    }

private:
    int stride() const { return key_.scales_stride(); }

    // n lanes at a time, of so many keys.
    template <typename Body>
    void for_each_vector(int g, int keys, const Body& body) {
        mov(scales_, run_);
        key_.bytes() ? mov(count_, kWeightRun) : mov(count_, left_);
        Label each;
        L(each);
        body(scales_ + g * 4);
        add(scales_, keys * stride() * 4);
        sub(count_, keys);
        jnz(each, T_NEAR);
    }

    void emit_groups(int g) {
        stage("groups from " + std::to_string(g));
        const int keys = stride() < lanes() ? lanes() / stride() : 1;
        const int n = keys > 1 ? lanes() : std::min(lanes(), stride() - g);
        Temp top(*this, "top"), x(*this, "x"), mask(*this, "mask");
        vmovups(top, splat(kLeastTop));
        vmovups(mask, splat_bits(0x7fffffff));
        for_each_vector(g, keys, [&](const RegExp& at) {
            load_f32(x, at, n);
            bit_and(x, x, mask);  // as integers, bits of larger magnitudes are larger, and of NaN the largest
            vpmaxsd(top, top, x);
        });
        for (int distance = stride(); distance < lanes(); distance *= 2) {
            swap_lanes(x, top, distance);
            vpmaxsd(top, top, x);
        }
        const Vec& inverse = mask;  // of no more use
        vmovups(inverse, splat(1.f));
        vdivps(inverse, inverse, top);
        store_f32(tops_ + g * 4, top, std::min(lanes(), key_.groups() - g));  // changes it
        if (key_.bytes()) return emit_words(g, keys, n, inverse);
        for_each_vector(g, keys, [&](const RegExp& at) {
            load_f32(x, at, n);
            vmulps(x, x, inverse);
            store_f32(at, x, n);
        });
    }

    // Of two keys, in the place of the first's. Where several keys share a vector, what is left in the place
    // of the second's does not matter.
    void emit_words(int g, int keys, int n, const Vec& inverse) {
        vmulps(inverse, inverse, splat(kScaleOfOne));
        for_each_vector(g, std::max(keys, 2), [&](const RegExp& at) {
            Temp first(*this, "first"), second(*this, "second");
            load_words_of(first, at, n, inverse);
            keys > 1 ? swap_lanes(second, first, stride())
                     : load_words_of(second, at + stride() * 4, n, inverse);
            join_words(first, first, second);
            store_f32(at, first, n);
        });
    }
    void load_words_of(const Vec& v, const RegExp& at, int n, const Vec& inverse) {
        load_f32(v, at, n);
        vmulps(v, v, inverse);
        vcvtps2dq(v, v);
        vpabsd(v, v);
    }

    const RowKey key_;
    const Gpr scales_ = gpr("scales"), tops_ = gpr("tops"), count_ = gpr("count"), run_ = gpr("run"),
              left_ = gpr("keys left");
};

}  // namespace

Status generate_tile_scales(const RowKey& key, std::vector<uint8_t>* code) {
    return TileScales(key).finish(code);
}
Status generate_tile_weights(const RowKey& key, std::vector<uint8_t>* code) {
    return TileWeights(key).finish(code);
}

}  // namespace quire::jit
