#include "jit/tile_value_bytes.h"

#include <cstddef>

#include "jit/tile_product.h"
#include "jit/tile_words.h"

namespace quire::jit {
namespace {

constexpr int kKeys = 4;  // of a lane; its bytes are of the first, third, second, fourth

// for each run of kWeightRun keys:
//   top[w] = largest probability of each lane
//   factors[g][run][w] = top[w] / 255 * tops[run][g]
//   for each four of its keys:
//     words[2][w] = round(p[key][w] * 4096 / top[w]), of two keys each
//     for each group g: weights[g][four][w] = round(words * scales / 2^15), of the four keys
class TileByteWeights : public Emitter {
public:
    explicit TileByteWeights(const RowKey& key)
        : Emitter(*key.target), key_(key), inverse_(vecs("inverse", key.rows)) {
        begin();
        mov(probabilities_, ptr[args() + offsetof(TileWeightsArgs, probabilities)]);
        mov(scales_, ptr[args() + offsetof(TileWeightsArgs, scales)]);
        mov(weights_, ptr[args() + offsetof(TileWeightsArgs, weights)]);
        mov(factors_, ptr[args() + offsetof(TileWeightsArgs, factors)]);
        mov(tops_, ptr[args() + offsetof(TileWeightsArgs, tops)]);
        mov(count_, ptr[args() + offsetof(TileWeightsArgs, count)]);
        vmovups(magic_, splat(kWhole));
        vmovups(mask_, splat_bits(0xffff));
        Label each;
        L(each);
        emit_tops();
        for (int i = 0; i < kWeightRun; i += kKeys) emit_four();
        sub(count_, kWeightRun);
        jnz(each, T_NEAR);
        end();
    }

private:
    static constexpr float kWhole = 8388608;  // 2^23: the last bit of a number above is one

    int panel_bytes() const { return key_.rows * vec_bytes(); }

    void emit_tops() {
        stage("tops");
        for (const Vec& top : inverse_) vmovups(top, splat(kLeastTop));
        for (int i = 0; i < kWeightRun * key_.rows; ++i) {
            const Vec& top = inverse_[size_t(i % key_.rows)];
            vmaxps(top, top, ptr[probabilities_ + i * vec_bytes()]);
        }
        const std::vector<Vec> unit = vecs("unit", key_.rows);
        for (size_t w = 0; w < unit.size(); ++w) vmulps(unit[w], inverse_[w], splat(1 / kLargestByte));
        for (int g = 0; g < key_.groups(); ++g) {
            Temp top(*this, "top"), factor(*this, "factor");
            vbroadcastss(top, ptr[tops_ + g * 4]);
            for (int w = 0; w < key_.rows; ++w) {
                vmulps(factor, top, unit[size_t(w)]);
                vmovups(ptr[factors_ + g * kWeightRuns * panel_bytes() + w * vec_bytes()], *factor);
            }
        }
        free(unit);
        add(factors_, panel_bytes());
        add(tops_, key_.groups() * 4);
        Temp largest(*this, "largest");
        vmovups(largest, splat(kWordOfOne));
        for (const Vec& top : inverse_) vdivps(top, largest, top);
    }

    void emit_four() {
        stage("four");
        const std::vector<Vec> p = vecs("p", kKeys * key_.rows);
        for (size_t i = 0; i < p.size(); ++i) {
            vmovaps(p[i], magic_);
            vfmadd231ps(p[i], inverse_[i % inverse_.size()], ptr[probabilities_ + int(i) * vec_bytes()]);
        }
        const auto of = [&](int key, int w) { return p[size_t(key * key_.rows + w)]; };
        for (int w = 0; w < key_.rows; ++w)
            for (int key = 0; key < kKeys; key += 2)
                join_words(of(key, w), of(key, w), of(key + 1, w), mask_);
        for (int g = 0; g < key_.groups(); ++g) {
            Temp first(*this, "first scales"), second(*this, "second scales");
            vpbroadcastd(first, ptr[scales_ + g * 4]);
            vpbroadcastd(second, ptr[scales_ + (2 * key_.scales_stride() + g) * 4]);
            for (int w = 0; w < key_.rows; ++w) {
                Temp low(*this, "low"), high(*this, "high");
                vpmulhrsw(low, first, of(0, w));
                vpmulhrsw(high, second, of(2, w));
                vpsllw(high, high, 8);
                bit_or(low, low, high);
                vmovups(
                    ptr[weights_ + g * tile_byte_weight_stride(key_.rows * lanes()) * 4 + w * vec_bytes()],
                    *low);
            }
        }
        free(p);
        add(probabilities_, kKeys * panel_bytes());
        add(scales_, kKeys * key_.scales_stride() * 4);
        add(weights_, panel_bytes());
    }

    const RowKey key_;
    const std::vector<Vec> inverse_;
    const Vec magic_ = vec("2^23"), mask_ = vec("low word");
    const Gpr probabilities_ = gpr("probabilities"), scales_ = gpr("scales"), weights_ = gpr("weights"),
              count_ = gpr("count"), factors_ = gpr("factors"), tops_ = gpr("tops");
};

// for each group g, for each of its panels (of as many as there are), for d of the panel step n:
//   sum[n][w] = output[d + n][w] * rescale[w]
//   for each run of keys:
//     acc[n][w] = sum over its fours of keys of values[d + n] . weights[g][four][w]
//     sum[n][w] += acc[n][w] * factors[g][run][w]
//   output[d + n][w] = sum[n][w]
class TilePvBytes : public TileProduct {
public:
    explicit TilePvBytes(const RowKey& key)
        : TileProduct(*key.target, key.rows, 0, 2), key_(key), sums_(vecs("sum", n_ * vecs_)) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        mov(left_, ptr[args() + offsetof(TilePvArgs, panels)]);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_group, each_panel, done;
        L(each_group);
        mov(panels_, (key_.dim / key_.groups() + kValuePanel - 1) / kValuePanel);
        L(each_panel);
        for (int d = 0; d < kValuePanel; d += n_) emit_dims(d);
        add(output_, kValuePanel * panel_bytes());
        add(panel_, kFourPanelStride * 4);
        dec(left_);
        jz(done, T_NEAR);
        dec(panels_);
        jnz(each_panel, T_NEAR);
        add(group_, tile_byte_weight_stride(vecs_ * lanes()) * 4);
        add(factors_, kWeightRuns * panel_bytes());
        jmp(each_group, T_NEAR);
        L(done);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    const Vec& sum(int n, int w) const { return sums_[size_t(n * vecs_ + w)]; }
    RegExp output_at(int d, int w) const { return output_ + d * panel_bytes() + w * vec_bytes(); }

    void emit_dims(int d) {
        stage("dims");
        mov(rescale_, ptr[args() + offsetof(TilePvArgs, rescale)]);
        for (int w = 0; w < vecs_; ++w) {
            const Vec& rescale = rows_[0];
            vmovups(rescale, ptr[rescale_ + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) vmulps(sum(n, w), rescale, ptr[output_at(d + n, w)]);
        }
        mov(weights_, group_);
        mov(factor_, factors_);
        lea(value_, ptr[panel_ + d * 4]);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each_run;
        L(each_run);
        emit_run();
        sub(count_, kWeightRun);
        jnz(each_run, T_NEAR);
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[output_at(d + n, w)], sum(n, w));
    }

    void emit_run() {
        constexpr int kFours = kWeightRun / kKeys;
        for (const Vec& v : acc_) zero(v);
        for (int i = 0; i < kFours; ++i)
            emit_step(
                weights_ + i * panel_bytes(), [&](int n) { return value_ + (i * kValuePanel + n) * 4; },
                [&](const Vec& acc, const Vec& codes, const Xbyak::Operand& weights) {
                    dot_bytes(acc, static_cast<const Vec&>(weights), codes);
                });
        ask_ahead(kFours);
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, ptr[factor_ + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd231ps(sum(n, w), acc(n, w), factor);
            }
        }
        add(weights_, kFours * panel_bytes());
        add(value_, kFours * kValuePanel * 4);
        add(factor_, panel_bytes());
    }

    const RowKey key_;
    const std::vector<Vec> sums_;
    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), panels_ = gpr("panels"), group_ = gpr("group"),
              left_ = gpr("panels left"), factors_ = gpr("factors"), weights_ = gpr("weights"),
              value_ = gpr("value"), count_ = gpr("count"), factor_ = gpr("factor"),
              rescale_ = gpr("rescale");
};

}  // namespace

bool has_tile_value_bytes(const RowKey& key) {
    return key.target->vector_bits == 512 && key.target->vnni && has_tile_value_words(key) &&
           key.dim % kValuePanel == 0;
}

Status generate_tile_byte_weights(const RowKey& key, std::vector<uint8_t>* code) {
    return TileByteWeights(key).finish(code);
}
Status generate_tile_pv_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvBytes(key).finish(code);
}

}  // namespace quire::jit
