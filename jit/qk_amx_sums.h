// QK by AMX: what sums of products are as numbers, times the scales of their groups.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "jit/qk_amx_scores.h"
#include "src/half.h"

namespace quire::jit {

class AmxSums : public AmxScores {
protected:
    static constexpr int kTileBytes = 64 * kAmxRows;

    explicit AmxSums(const RowKey& key) : AmxScores(key), key_(key) {}

    // Before all others.
    void set_sums() {
        if (form_.mixed.empty())
            vmovups(times_256_ = vec("a byte up"), constant(byte_up()));
        else
            vmovups(digit_weights_ = vec("weights of digits"), constant(digit_weights()));
    }
    // Share `part` of `parts` of what sixteen keys ask for.
    virtual void emit_prefetches(int part, int parts) = 0;

    // Of a set's sums, which are those of `place`, adds up the numbers.
    void emit_scaled(int set, int place) {
        stage("sums of set " + std::to_string(set));
        if (set == 0) acc_ = vecs("acc", vectors());
        Temp total(*this, "total"), low(*this, "low"), scale(*this, "scale");
        for (int v = 0; v < vectors(); ++v) {
            const int turn = set * vectors() + v, turns = form_.sets() * vectors(), asks = std::min(4, turns);
            if (turn * asks % turns < asks) emit_prefetches(turn * asks / turns, asks);
            emit_total(total, low, sums_ + place * form_.digits * kTileBytes + v * vec_bytes());
            load_scales(scale, set, v);
            set == 0 ? vmulps(acc_[size_t(v)], total, *scale) : vfmadd231ps(acc_[size_t(v)], total, *scale);
        }
    }
    // Where digits stand side by side each is scaled as a sum of its own, and then by what it weighs: the
    // lowest, which may have sets for itself, weighs 1.
    void emit_mixed() {
        stage("sums");
        acc_ = vecs("acc", vectors());
        Temp sum(*this, "sum"), scale(*this, "scale");
        const int sets = form_.sets();
        for (int v = 0; v < vectors(); ++v) {
            constexpr int kAsks = 4;
            if (v * kAsks % vectors() < kAsks) emit_prefetches(v * kAsks / vectors(), kAsks);
            const Vec& acc = acc_[size_t(v)];
            for (int i = 0; i < sets; ++i) {
                const KeyAmx::Set& set = form_.mixed[size_t(i)];
                repeat(scale, scales_ + (v * key_.scales_stride() + set.group) * 4, set.groups);
                vcvtdq2ps(sum, ptr[sums_ + i * kTileBytes + v * vec_bytes()]);
                i == 0 ? vmulps(acc, sum, *scale) : vfmadd231ps(acc, sum, *scale);
                const bool last = i + 1 == sets || form_.mixed[size_t(i) + 1].digit > 0;
                if (last && set.digit == 0) vmulps(acc, acc, digit_weights_);
            }
        }
    }
    void emit_sums_scores() { emit_scores(acc_); }

    const RowKey key_;
    const Gpr scales_ = gpr("scales"), sums_ = gpr("sums");

private:
    std::vector<uint32_t> digit_weights() const {
        const KeyAmx::Set& set = form_.mixed.front();
        std::vector<uint32_t> weights;
        for (int lane = 0; lane < lanes(); ++lane) {
            const int digit = lane % form_.together / set.groups;
            weights.push_back(
                float_bits(digit < set.digits ? float(1 << 8 * (form_.digits - 1 - digit)) : 1.f));
        }
        return weights;
    }
    static std::vector<uint32_t> byte_up() {
        std::vector<uint32_t> order;
        for (uint32_t lane = 0; lane < 16; ++lane) order.push_back(0x02010080 + 0x04040400 * (lane % 4));
        return order;
    }
    // What the digits are together, as a number.
    void emit_total(const Vec& total, const Vec& low, const RegExp& sums) {
        vmovups(total, ptr[sums]);
        vpshufb(z(total), z(total), z(times_256_));  // a shift would be in a product's place
        vpaddd(total, total, ptr[sums + kTileBytes]);
        vcvtdq2ps(total, total);
        if (form_.digits == 2) return;
        vcvtdq2ps(low, ptr[sums + 2 * kTileBytes]);
        vfmadd132ps(total, low, splat(256));
    }
    // A group that there is not has sums of 0, and the scale of another.
    void load_scales(const Vec& v, int set, int vector) {
        const int stride = key_.scales_stride(), first = set * form_.together;
        const RegExp at = scales_ + (vector * keys_a_vector() * stride + first) * 4;
        if (form_.lanes() == 1) {
            load_every_second(v, at);
            return;
        }
        if (keys_a_vector() == 1 && first + form_.together <= form_.groups)
            return repeat(v, at, form_.together);
        std::vector<int> index;
        for (int lane = 0; lane < lanes(); ++lane) {
            const int group = std::min(lane % form_.together, form_.groups - 1 - first);
            index.push_back(lane / form_.lanes() * stride + group);
        }
        load_lanes(v, at, index);
    }
    // A set's scales, as often as there are query rows.
    void repeat(const Vec& v, const RegExp& at, int groups) {
        switch (groups) {
            case 1: return broadcast(v, ptr[at]);
            case 2: return vpbroadcastq(z(v), ptr[at]);
            case 4: return vbroadcastf32x4(z(v), ptr[at]);
            case 8: return vbroadcastf32x8(z(v), ptr[at]);
            default: return vmovups(v, ptr[at]);
        }
    }

    Vec times_256_, digit_weights_;
    std::vector<Vec> acc_;
};

}  // namespace quire::jit
