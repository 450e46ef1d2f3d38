#include "jit/weights.h"

#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

constexpr float kLargest = 32767;
// Below it a probability or scale weighs nothing beside the row's others; its inverse is finite.
constexpr float kLeast = 1e-30f;

// for r in 0..R:                                                             emit_row
//   top = max over keys of p[r][key]
//   p[r][key] *= 32767 / top;  factors[r][g] = top / 32767
// for each vector of groups g:                                               emit_groups
//   top = max over keys of |scale[key][g]|; NaN if one of them is            emit_top
//   for each pair of keys, for r:                                            emit_pair
//     weights[pair][r][g] = round(p[r][key] * (scale[key][g] / top)), of both keys
//   factors[r][g] *= top                                                     emit_factors
class Weights : public Emitter {
public:
    explicit Weights(const RowKey& key) : Emitter(*key.target), key_(key) {
        begin();
        mov(factors_, ptr[args() + offsetof(WeightsArgs, factors)]);
        for (int r = 0; r < key_.rows; ++r) emit_row(r);
        for (int g = 0; g < key_.weight_stride(); g += key_.weight_lanes()) emit_groups(g);
        end();
    }

private:
    Xbyak::Xmm n(const Vec& v) const { return narrow(v, key_.weight_lanes()); }
    RegExp factors_at(int r, int g) const { return factors_ + (r * key_.weight_stride() + g) * 4; }

    template <typename Body>
    void for_each_vector(int r, const Body& body) {
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        if (r > 0) add(probabilities_, r * kBlock * 4);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(probabilities_, vec_bytes());
        sub(count_, lanes());
        jnz(each, T_NEAR);
    }

    void emit_row(int r) {
        stage("row " + std::to_string(r));
        Temp top(*this, "top");
        vmovups(top, splat(kLeast));
        for_each_vector(r, [&] { vmaxps(top, top, ptr[probabilities_]); });
        fold(Fold::max, top);
        Temp factor(*this, "factor");
        vmulps(factor, top, splat(1 / kLargest));
        for (int g = 0; g < key_.weight_stride(); g += key_.weight_lanes())
            vmovups(ptr[factors_at(r, g)], n(factor));
        vmovups(factor, splat(kLargest));
        vdivps(top, factor, top);
        for_each_vector(r, [&] {
            vmulps(factor, top, ptr[probabilities_]);
            vmovups(ptr[probabilities_], factor);
        });
    }

    void emit_groups(int g) {
        stage("groups from " + std::to_string(g));
        Temp top(*this, "top"), inverse(*this, "inverse");
        emit_top(top, inverse, g);
        vmovups(inverse, splat(1.f));
        vdivps(inverse, inverse, top);
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        if (g > 0) add(weights_, g * 4);
        for_each_key(g, 2, [&] {
            emit_pair(inverse);
            add(probabilities_, 8);
            add(weights_, key_.rows * key_.weight_stride() * 4);
        });
        emit_factors(top, g);
    }

    template <typename Body>
    void for_each_key(int g, int step, const Body& body) {
        mov(scales_, ptr[args() + offsetof(WeightsArgs, scales)]);
        if (g > 0) add(scales_, g * 4);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(scales_, step * key_.scales_stride() * 4);
        sub(count_, step);
        jnz(each, T_NEAR);
    }

    // As integers, bits of larger magnitudes are larger, and those of NaN the largest.
    void emit_top(const Vec& top, const Vec& magnitude, int g) {
        vmovups(top, splat(kLeast));
        Temp mask(*this, "mask");
        vmovups(mask, splat_bits(0x7fffffff));
        for_each_key(g, 1, [&] {
            vandps(n(magnitude), n(mask), ptr[scales_]);
            vpmaxsd(n(top), n(top), n(magnitude));
        });
    }

    void emit_pair(const Vec& inverse) {
        Temp first(*this, "first scales"), second(*this, "second scales");
        vmulps(n(first), n(inverse), ptr[scales_]);
        vmulps(n(second), n(inverse), ptr[scales_ + key_.scales_stride() * 4]);
        for (int r = 0; r < key_.rows; ++r) {
            Temp low(*this, "low"), high(*this, "high");
            vbroadcastss(n(low), ptr[probabilities_ + r * kBlock * 4]);
            vbroadcastss(n(high), ptr[probabilities_ + r * kBlock * 4 + 4]);
            vmulps(n(low), n(low), n(first));
            vmulps(n(high), n(high), n(second));
            vcvtps2dq(n(low), n(low));
            vcvtps2dq(n(high), n(high));
            join_words(n(low), n(low), n(high));
            vmovups(ptr[weights_ + r * key_.weight_stride() * 4], n(low));
        }
    }

    void emit_factors(const Vec& top, int g) {
        for (int r = 0; r < key_.rows; ++r) {
            Temp factor(*this, "factor");
            vmulps(n(factor), n(top), ptr[factors_at(r, g)]);
            vmovups(ptr[factors_at(r, g)], n(factor));
        }
    }

    const RowKey key_;
    const Gpr probabilities_ = gpr("probabilities"), scales_ = gpr("scales"), weights_ = gpr("weights"),
              factors_ = gpr("factors"), count_ = gpr("count");
};

}  // namespace

Status generate_weights(const RowKey& values, std::vector<uint8_t>* code) {
    return Weights(values).finish(code);
}

}  // namespace quire::jit
