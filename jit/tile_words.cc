#include "jit/tile_words.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "jit/tile_codes.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

constexpr int kMostOfAGroup = 512;  // 2^15 * 2^7 * 512 <= 2^31

// A step multiplies a pair of words: acc[n][w] += element.low * row.low + element.high * row.high. Without
// VNNI that takes a register.
int spare(const RowKey& key) { return key.target->vnni ? 0 : 1; }

// for key in 0..count step n:
//   scores[key + n][w] = 0
//   for each group of the row:                                                    emit_group
//     acc[n][w] = dot products of its words
//     scores[key + n][w] += acc[n][w] * scale[key + n][group]                     emit_scaled
//   scores[key + n][w] *= factors[w]
//
// A group lies in lanes of chunks (jit/word_loader.h).
class TileQkWords : public TileQkCodes {
public:
    explicit TileQkWords(const RowKey& key)
        : TileQkCodes(key, spare(key)), order_(word_order(key.format, key.dim, lanes())) {
        generate();
    }

private:
    static constexpr int kOfLines = 8;  // elements between them

    int row_bytes() const { return key_.tile_lanes() * 4; }
    int turn() const override { return std::lcm(scale_group(key_.format), 4 * lanes()); }

    void emit_elements(int count) override {
        const int group = scale_group(key_.format);
        for (int first = 0; first < count; first += group) {
            stage("elements from " + std::to_string(first));
            emit_group(first, group);
            emit_scaled(first / group);
        }
    }

    void emit_next() override {
        add(query_, turn() / 2 * panel_bytes());
        add(element_, turn() * 2);
        add(scale_, turn() / scale_group(key_.format) * 4);
    }

    // Four elements are a lane of both vectors of their chunk.
    void emit_group(int begin, int count) {
        for (int element = begin; element < begin + count; element += 4) {
            if (element % kOfLines == 0) ask_ahead(kOfLines / 2);
            for (int half = 0; half < 2; ++half) {
                const int lane = element / 4;
                const int pair = lane / lanes() * 2 * lanes() + half * lanes() + lane % lanes();
                const bool first = element == begin && half == 0;
                emit_step(
                    query_ + query_pair(pair) * panel_bytes(),
                    [&](int n) { return element_ + n * row_bytes() + pair * 4; },
                    [&](const Vec& sum, const Vec& words, const Xbyak::Operand& row) {
                        first ? vpmaddwd(sum, words, row) : dot_words(sum, words, row);
                    });
            }
        }
    }

    // Where the query has the elements of a pair of the keys' words.
    int query_pair(int pair) const {
        const int first = order_[size_t(2 * pair)];
        return swaps_middle(key_.format) ? first / 4 * 2 + first % 4 : first / 2;
    }

    void emit_scaled(int group) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            for (int w = 0; w < vecs_; ++w) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd213ps(acc(n, w), scale, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], acc(n, w));
            }
        }
    }

    void emit_end() override { emit_factors(); }

    const std::vector<int> order_;
};

// for each group g, for each of its panels (of as many as there are), for d of the panel step n:
//   acc[n][w] = sum over pairs of keys of values[d + n] . weights[g][pair][w]
//   output[d + n][w] = output[d + n][w] * rescale[w] + acc[n][w] * factors[w] * tops[g]
class TilePvWords : public TileProduct {
public:
    explicit TilePvWords(const RowKey& key) : TileProduct(*key.target, key.rows, spare(key)), key_(key) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(tops_, ptr[args() + offsetof(TilePvArgs, tops)]);
        mov(left_, ptr[args() + offsetof(TilePvArgs, panels)]);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_group, each_panel, done;
        L(each_group);
        mov(panels_, (key_.dim / key_.groups() + kValuePanel - 1) / kValuePanel);
        L(each_panel);
        for (int d = 0; d < kValuePanel; d += n_) emit_dims(d);
        add(output_, kValuePanel * panel_bytes());
        add(panel_, kPairPanelStride * 4);
        dec(left_);
        jz(done, T_NEAR);
        dec(panels_);
        jnz(each_panel, T_NEAR);
        add(group_, tile_weight_stride(vecs_ * lanes()) * 4);
        add(tops_, 4);
        jmp(each_group, T_NEAR);
        L(done);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    static constexpr int kUnroll = kKeyPadding / 2;  // pairs
    static constexpr int kOfLines = 4;               // pairs between them

    void emit_dims(int d) {
        stage("dims");
        for (const Vec& v : acc_) zero(v);
        mov(weights_, group_);
        lea(value_, ptr[panel_ + d * 4]);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each_pair;
        begin_loop(each_pair);
        for (int i = 0; i < kUnroll; ++i) {
            emit_step(
                weights_ + i * panel_bytes(), [&](int n) { return value_ + (i * kValuePanel + n) * 4; },
                [&](const Vec& sum, const Vec& words, const Xbyak::Operand& row) {
                    dot_words(sum, words, row);
                });
            if (i % kOfLines == kOfLines - 1) ask_ahead(kOfLines);
        }
        add(weights_, kUnroll * panel_bytes());
        add(value_, kUnroll * kValuePanel * 4);
        sub(count_, kKeyPadding);
        jnz(each_pair, T_NEAR);
        emit_output(d);
    }

    void emit_output(int d) {
        const auto output_at = [&](int n, int w) {
            return ptr[output_ + (d + n) * panel_bytes() + w * vec_bytes()];
        };
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        for (int w = 0; w < vecs_; ++w) {
            Temp factor(*this, "factor");
            broadcast(factor, ptr[tops_]);
            vmulps(factor, factor, ptr[factors_ + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vmulps(acc(n, w), acc(n, w), factor);
            }
        }
        const auto rescaled = [&] {
            const Vec& rescale = rows_[0];  // of no more use
            for (int w = 0; w < vecs_; ++w) {
                vmovups(rescale, ptr[rescale_ + w * vec_bytes()]);
                for (int n = 0; n < n_; ++n) vfmadd231ps(acc(n, w), rescale, output_at(n, w));
            }
        };
        with_rescale(*this, rescale_, rescaled, [] {});
        for (int w = 0; w < vecs_; ++w)
            for (int n = 0; n < n_; ++n) vmovups(output_at(n, w), acc(n, w));
    }

    const RowKey key_;
    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), panels_ = gpr("panels"), group_ = gpr("group"),
              left_ = gpr("panels left"), tops_ = gpr("tops"), weights_ = gpr("weights"),
              value_ = gpr("value"), count_ = gpr("count"), factors_ = gpr("factors"),
              rescale_ = gpr("rescale");
};

}  // namespace

bool has_tile_key_words(const RowKey& key) {
    return has_words(key.format) && !has_minima(key.format) && scale_group(key.format) <= kMostOfAGroup;
}

bool has_tile_value_words(const RowKey& key) {
    return has_words(key.format) && !has_minima(key.format) &&
           (key.groups() == 1 || scale_group(key.format) % kValuePanel == 0);
}

Status generate_tile_qk_words(const RowKey& key, std::vector<uint8_t>* code) {
    return TileQkWords(key).finish(code);
}
Status generate_tile_pv_words(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvWords(key).finish(code);
}

}  // namespace quire::jit
