#include "jit/tile_words.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "jit/tile_product.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

constexpr int kMostOfAGroup = 512;  // 2^15 * 2^7 * 512 <= 2^31

// A step multiplies a pair of words: acc[n][w] += element.low * row.low + element.high * row.high.
class TileWords : public TileProduct {
protected:
    explicit TileWords(const RowKey& key)
        : TileProduct(*key.target, key.rows, key.target->vnni ? 0 : 1), key_(key) {}

    template <typename ElementAt>
    void emit_pairs(const RegExp& lanes_at, const ElementAt& element_at, bool first) {
        emit_step(lanes_at, element_at, [&](const Vec& sum, const Vec& element, const Xbyak::Operand& row) {
            first ? vpmaddwd(sum, element, row) : dot_words(sum, element, row);
        });
    }

    const RowKey key_;
};

// for key in 0..count step n:
//   scores[key + n][w] = 0
//   for each group of the row:                                                    emit_group
//     acc[n][w] = dot products of its words
//     scores[key + n][w] += acc[n][w] * scale[key + n][group]                     emit_scaled
//   scores[key + n][w] *= factors[w]
//
// A group lies in lanes of chunks (jit/word_loader.h); chunks and groups fit together in periods, which are
// turns of a loop.
class TileQkWords : public TileWords {
public:
    explicit TileQkWords(const RowKey& key)
        : TileWords(key), order_(word_order(key.format, key.dim, lanes())) {
        begin();
        mov(keys_, ptr[args() + offsetof(TileQkArgs, keys)]);
        mov(scales_, ptr[args() + offsetof(TileQkArgs, scales)]);
        mov(scores_, ptr[args() + offsetof(TileQkArgs, scores)]);
        mov(factors_, ptr[args() + offsetof(TileQkArgs, factors)]);
        mov(count_, ptr[args() + offsetof(TileQkArgs, count)]);
        Label each_tile;
        L(each_tile);
        {
            emit_zero();
            mov(query_, ptr[args() + offsetof(TileQkArgs, query)]);
            mov(element_, keys_);
            mov(scale_, scales_);
            emit_dims();
            emit_factors();
        }
        add(keys_, n_ * row_bytes());
        add(scales_, n_ * key_.scales_stride() * 4);
        add(scores_, n_ * panel_bytes());
        sub(count_, n_);
        jnz(each_tile, T_NEAR);
        end();
    }

private:
    int row_bytes() const { return key_.query_words() * 2; }
    RegExp score_at(int n, int w) const { return scores_ + n * panel_bytes() + w * vec_bytes(); }

    void emit_zero() {
        Temp none(*this, "none");
        zero(none);
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[score_at(n, w)], *none);
    }

    void emit_dims() {
        const int group = scale_group(key_.format), period = std::lcm(group, 4 * lanes());
        const int whole = key_.dim / period;
        if (whole > 0) {
            Label each;
            mov(left_, whole);
            L(each);
            emit_groups(period);
            add(query_, period / 2 * panel_bytes());
            add(element_, period * 2);
            add(scale_, period / group * 4);
            dec(left_);
            jnz(each, T_NEAR);
        }
        emit_groups(key_.dim % period);
    }

    void emit_groups(int dims) {
        const int group = scale_group(key_.format);
        for (int first = 0; first < dims; first += group) {
            stage("elements from " + std::to_string(first));
            emit_group(first, group);
            emit_scaled(first / group);
        }
    }

    // Four elements are a lane of both vectors of their chunk.
    void emit_group(int begin, int count) {
        for (int element = begin; element < begin + count; element += 4)
            for (int half = 0; half < 2; ++half) {
                const int lane = element / 4;
                const int pair = lane / lanes() * 2 * lanes() + half * lanes() + lane % lanes();
                emit_pairs(
                    query_ + query_pair(pair) * panel_bytes(),
                    [&](int n) { return element_ + n * row_bytes() + pair * 4; },
                    element == begin && half == 0);
            }
    }

    // Where the query has the elements of a pair of the keys' words.
    int query_pair(int pair) const {
        const int first = order_[size_t(2 * pair)];
        return swaps_middle(key_.format) ? first / 4 * 2 + first % 4 : first / 2;
    }

    // The sum of a group hides that products with an infinite scale have either sign: scale * 0 + scale is
    // NaN then, and leaves the row to the definition.
    void emit_scaled(int group) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            vbroadcastss(scale, ptr[scale_ + (n * key_.scales_stride() + group) * 4]);
            vfmadd132ps(scale, scale, splat(0.f));
            for (int w = 0; w < vecs_; ++w) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd213ps(acc(n, w), scale, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], acc(n, w));
            }
        }
    }

    void emit_factors() {
        stage("factors");
        for (int w = 0; w < vecs_; ++w) {
            Temp factor(*this, "factor");
            vmovups(factor, ptr[factors_ + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) {
                vmulps(acc(n, w), factor, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], acc(n, w));
            }
        }
    }

    const std::vector<int> order_;
    const Gpr keys_ = gpr("keys"), scales_ = gpr("scales"), scores_ = gpr("scores"), count_ = gpr("count"),
              query_ = gpr("query"), element_ = gpr("element"), scale_ = gpr("scale"),
              factors_ = gpr("factors"), left_ = gpr("left");
};

// for each group g, for each of its panels, for d of the panel step n:
//   acc[n][w] = sum over pairs of keys of values[d + n] . weights[g][pair][w]
//   output[d + n][w] = output[d + n][w] * rescale[w] + acc[n][w] * factors[w] * tops[g]
class TilePvWords : public TileWords {
public:
    explicit TilePvWords(const RowKey& key) : TileWords(key) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(tops_, ptr[args() + offsetof(TilePvArgs, tops)]);
        mov(groups_, key_.groups());
        Label each_group, each_panel;
        L(each_group);
        mov(panels_, (key_.dim / key_.groups() + kValuePanel - 1) / kValuePanel);
        L(each_panel);
        for (int d = 0; d < kValuePanel; d += n_) emit_dims(d);
        add(output_, kValuePanel * panel_bytes());
        add(panel_, kPairPanelStride * 4);
        dec(panels_);
        jnz(each_panel, T_NEAR);
        add(group_, kTileKeys / 2 * panel_bytes());
        add(tops_, 4);
        dec(groups_);
        jnz(each_group, T_NEAR);
        end();
    }

private:
    static constexpr int kUnroll = kKeyPadding / 2;  // pairs

    void emit_dims(int d) {
        stage("dims");
        for (const Vec& v : acc_) zero(v);
        mov(weights_, group_);
        lea(value_, ptr[panel_ + d * 4]);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each_pair;
        L(each_pair);
        for (int i = 0; i < kUnroll; ++i)
            emit_pairs(
                weights_ + i * panel_bytes(), [&](int n) { return value_ + (i * kValuePanel + n) * 4; },
                false);
        add(weights_, kUnroll * panel_bytes());
        add(value_, kUnroll * kValuePanel * 4);
        sub(count_, kKeyPadding);
        jnz(each_pair, T_NEAR);
        emit_output(d);
    }

    void emit_output(int d) {
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        mov(rescale_, ptr[args() + offsetof(TilePvArgs, rescale)]);
        for (int w = 0; w < vecs_; ++w) {
            Temp factor(*this, "factor");
            const Vec& rescale = rows_[0];  // of no more use
            vbroadcastss(factor, ptr[tops_]);
            vmulps(factor, factor, ptr[factors_ + w * vec_bytes()]);
            vmovups(rescale, ptr[rescale_ + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) {
                const RegExp output = output_ + (d + n) * panel_bytes() + w * vec_bytes();
                vcvtdq2ps(acc(n, w), acc(n, w));
                vmulps(acc(n, w), acc(n, w), factor);
                vfmadd231ps(acc(n, w), rescale, ptr[output]);
                vmovups(ptr[output], acc(n, w));
            }
        }
    }

    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), panels_ = gpr("panels"), group_ = gpr("group"),
              groups_ = gpr("groups"), tops_ = gpr("tops"), weights_ = gpr("weights"), value_ = gpr("value"),
              count_ = gpr("count"), factors_ = gpr("factors"), rescale_ = gpr("rescale");
};

}  // namespace

bool has_tile_key_words(const RowKey& key) {
    return has_words(key.format) && scale_group(key.format) <= kMostOfAGroup;
}

bool has_tile_value_words(const RowKey& key) {
    return has_words(key.format) && (key.groups() == 1 || scale_group(key.format) % kValuePanel == 0);
}

Status generate_tile_qk_words(const RowKey& key, std::vector<uint8_t>* code) {
    return TileQkWords(key).finish(code);
}
Status generate_tile_pv_words(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvWords(key).finish(code);
}

}  // namespace quire::jit
