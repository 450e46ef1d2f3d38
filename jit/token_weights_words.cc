// Weights that are words, of blocks of tokens, or the scales of scaled words: the lanes are tokens.
#include <algorithm>
#include <cstddef>

#include "jit/token_weights.h"
#include "jit/weights_emitter.h"

namespace quire::jit {
namespace {

// for each set of four groups, or what is left of them:                              emit_set
//   top[g] = max over tokens of |scale[token][g]|, as float16; NaN if one of them is emit_tops
//   for each block, for each two groups of the set:                                  emit_pair
//     for r: weights[r] = round(p[r][token] * (scale * 32767 / top)) of both groups
//     (of products: as jit/weights.cc; scaled words: round(scale * 4095 / top))
//   factors[r][g] = top / 32767 * the row's of the block                             emit_factors
//
// Packing two groups' dwords puts four tokens of each into every 128 bits, and a shuffle two of each in turn
// (TokenWords).
class TokenWordWeights : public WeightsEmitter {
public:
    explicit TokenWordWeights(const RowKey& key)
        : WeightsEmitter(key), form_(key), vecs_(kBlockTokens / lanes()) {
        begin();
        if (rounds_probabilities()) round_probabilities();
        if (of_products())
            for (int lane = 0; lane < lanes(); ++lane) order_.push_back(lane / 2);
        xor_(set_scales_, set_scales_);
        mov(set_weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        if (key_.scales_words()) add(set_weights_, ScaledWords(key_).scales_at());
        mov(factors_, ptr[args() + offsetof(WeightsArgs, factors)]);
        const int sets = key_.groups() / kSet, left = key_.groups() % kSet;
        if (sets > 0) times(sets, "sets left", [&] { emit_set(kSet); });
        if (left > 0) emit_set(left);
        end();
    }

private:
    static constexpr int kSet = 4;                        // groups
    static constexpr int kGroupBytes = 2 * kBlockTokens;  // of scales

    // body() for each block.
    template <typename Body>
    void for_each_block(const Body& body) {
        mov(blocks_, ptr[args() + offsetof(WeightsArgs, stored_scales)]);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        mov(scales_, ptr[blocks_]);
        add(scales_, set_scales_);
        body();
        add(blocks_, 8);
        sub(count_, kBlockTokens);
        jnz(each, T_NEAR);
    }

    void emit_set(int groups) {
        stage("set of groups");
        const Vec top = emit_tops(groups);
        emit_weights(top, groups);
        for (int r = 0; r < key_.rows; ++r) {
            Temp factor(*this, "factor");
            emit_factor(factor, top, r);
            store_f32(factors_ + r * key_.groups() * 4, factor, groups);
        }
        free({top});
        add(set_scales_, groups * kGroupBytes);
        add(set_weights_, (groups + 1) / 2 * TokenWords::kPairBytes);
        add(factors_, groups * 4);
    }

    // Lane g of each 128 bits: that of group g. As integers, bits of larger magnitudes are larger, and those
    // of NaN the largest.
    Vec emit_tops(int groups) {
        const std::vector<Vec> halves = emit_top_halves(groups), tops = vecs("top", kSet);
        for (int g = 0; g < kSet; ++g) {
            const Vec &top = tops[size_t(g)],
                      &of_group = halves[size_t(std::min(g, groups - 1) / together())];
            const bool upper = std::min(g, groups - 1) % together() > 0;
            upper || together() == 1 ? swap_lanes(top, of_group, lanes() / 2) : vmovaps(top, of_group);
            if (together() == 1) vpmaxsw(top, top, of_group);
            halves_to_floats(top);
            vpmaxsd(top, top, splat(kLeastTop));
        }
        free(halves);
        fold_four(tops.data(), [&](const Vec& to, const Vec& from) { vpmaxsd(to, to, from); });
        free({tops.begin() + 1, tops.end()});
        return tops[0];
    }
    int together() const { return vec_bytes() / kGroupBytes; }  // groups whose halves are a vector

    // Of each token of so many groups a vector.
    std::vector<Vec> emit_top_halves(int groups) {
        const std::vector<Vec> tops = vecs("top halves", (groups + together() - 1) / together());
        for (const Vec& top : tops) zero(top);
        Temp mask(*this, "mask"), magnitude(*this, "magnitude");
        vmovups(mask, splat_bits(0x7fff7fff));
        for_each_block([&] {
            for (int i = 0; i < int(tops.size()); ++i) {
                const int bytes = std::min(together(), groups - i * together()) * kGroupBytes;
                load_raw(magnitude, scales_ + i * vec_bytes(), bytes);
                bit_and(magnitude, magnitude, mask);
                vpmaxsw(tops[size_t(i)], tops[size_t(i)], magnitude);
            }
        });
        return tops;
    }

    void emit_weights(const Vec& top, int groups) {
        const std::vector<Vec> inverse = vecs("inverse", groups);
        emit_inverse(inverse[0], top);
        for (int g = groups - 1; g >= 0; --g) vpermilps(inverse[size_t(g)], inverse[0], uint8_t(g * 0x55));
        if (!order_.empty()) hold_lanes(order_, 4);
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(weights_, set_weights_);
        for_each_block([&] {
            for (int g = 0; g < groups; g += 2)
                for (int v = 0; v < vecs_; ++v) emit_pair(inverse, g, std::min(2, groups - g), v);
            add(probabilities_, kBlockTokens * probability_bytes());
            add(weights_, form_.block_bytes());
        });
        drop_held();
        free(inverse);
    }

    // Of two groups, or the last one alone.
    void emit_pair(const std::vector<Vec>& inverse, int first, int groups, int v) {
        const std::vector<Vec> scales = vecs("scales", groups);
        for (int g = 0; g < groups; ++g)
            load_related(scales[size_t(g)], inverse[size_t(first + g)], first + g, v);
        const RegExp to = weights_ + first / 2 * TokenWords::kPairBytes + v * vec_bytes();
        if (rounds_probabilities()) {
            pack_words(scales);
            emit_words(scales[0], v, to);
        } else {
            for (int r = 0; r < key_.rows; ++r) emit_weights_of(scales, r, v, to + r * form_.row_bytes());
        }
        free(scales);
    }

    void load_related(const Vec& scale, const Vec& inverse, int g, int v) {
        load_number(QUIRE_F16, scale, scales_ + g * kGroupBytes + v * vec_bytes() / 2, lanes());
        vmulps(scale, scale, inverse);
    }

    void emit_words(const Vec& scales, int v, const RegExp& to) {
        if (key_.scales_words()) return vmovups(ptr[to], scales);
        for (int r = 0; r < key_.rows; ++r) {
            Temp weight(*this, "weight");
            load_lanes(weight, row_at(r) + v * vec_bytes() / 2, order_);  // pairs of tokens
            vpmulhrsw(weight, weight, scales);
            vmovups(ptr[to + r * form_.row_bytes()], *weight);
        }
    }

    void emit_weights_of(const std::vector<Vec>& scales, int r, int v, const RegExp& to) {
        const std::vector<Vec> weights = vecs("weights", int(scales.size()));
        vmovups(weights.back(), ptr[row_at(r) + v * vec_bytes()]);
        for (size_t g = 0; g < scales.size(); ++g) vmulps(weights[g], weights.back(), scales[g]);
        pack_words(weights);
        vmovups(ptr[to], weights[0]);
        free(weights);
    }

    void pack_words(const std::vector<Vec>& numbers) {
        for (const Vec& v : numbers) vcvtps2dq(v, v);
        vpackssdw(numbers[0], numbers[0], numbers.back());
        vpshufd(numbers[0], numbers[0], 0xd8);
    }

    const TokenWords form_;
    const int vecs_;  // of a block's tokens
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), factors_ = gpr("factors"),
              blocks_ = gpr("blocks"), set_scales_ = gpr("to the set's scales"),
              set_weights_ = gpr("weights of the set");
    std::vector<int> order_;  // of pairs of probabilities in the lanes
};

}  // namespace

Status generate_token_weights_words(const RowKey& values, std::vector<uint8_t>* code) {
    return TokenWordWeights(values).finish(code);
}

}  // namespace quire::jit
