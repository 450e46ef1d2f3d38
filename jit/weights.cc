#include "jit/weights.h"

#include <algorithm>
#include <cstddef>

#include "jit/scaled_amx.h"
#include "jit/weights_amx.h"
#include "jit/weights_emitter.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

// for each vector of groups g:                                               emit_groups
//   top = max over keys of |scale[key][g]|; NaN if one of them is            emit_top
//   for each pair of keys, for r:                                            emit_pairs
//     weights[r][pair][g] = round(p[r][key] * (scale[key][g] * 32767 / top)), of both keys, or of products
//     round(round(p[r][key] * 32767) * round(scale[key][g] * 32767 / top) / 32768)
//   factors[r][g] = top / 32767 * the row's of the block                     emit_factors
//
// Scaled words: weights = round(p * 4095), and in place of those of pairs round(scale * 4095 / top).
//
// A vector holds the groups of as many keys, or of weights of as many pairs of keys, as fit it.
class Weights : public WeightsEmitter {
public:
    explicit Weights(const RowKey& key) : WeightsEmitter(key) {
        begin();
        if (rounds_probabilities()) round_probabilities();
        if (of_products()) {
            for (int lane = 0; lane < lanes(); ++lane) order_.push_back(lane / key_.weight_lanes());
        } else if (packs()) {
            for (int lane = 0; lane < lanes(); ++lane)
                order_.push_back(lane / 4 * 4 / key_.weight_lanes() * 2 + lane % 2);
        }
        if (!order_.empty()) hold_lanes(order_, 8);
        mov(factors_, ptr[args() + offsetof(WeightsArgs, factors)]);
        for (int g = 0; g < key_.weight_stride(); g += key_.weight_lanes()) emit_groups(g);
        drop_held();
        end();
    }

private:
    int at_a_time() const { return lanes() / key_.weight_lanes(); }  // keys, or pairs of them
    int weights_bytes() const { return weight_row_bytes(2 * key_.weight_stride()); }  // of one query row
    // A quarter of a vector has four groups of one pair of keys, whose probabilities serve both vectors that
    // are packed into it.
    bool packs() const { return !rounds_probabilities() && lanes() == 16 && key_.weight_lanes() >= 4; }
    RegExp factors_at(int r, int g) const { return factors_ + (r * key_.weight_stride() + g) * 4; }

    void emit_groups(int g) {
        stage("groups from " + std::to_string(g));
        Temp top(*this, "top"), inverse(*this, "inverse");
        emit_top(top, inverse, g);
        emit_inverse(inverse, top);
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        const int at = g * 4 + (key_.scales_words() ? ScaledWords(key_).scales_at() : 0);
        if (at > 0) add(weights_, at);
        for_each_vector_of_keys(g, 2, [&] {
            emit_pairs(inverse);
            add(probabilities_, 2 * probability_bytes() * at_a_time());
            add(weights_, at_a_time() * key_.weight_stride() * 4);
        });
        emit_factors(top, g);
    }

    // `vectors` of scales a turn.
    template <typename Body>
    void for_each_vector_of_keys(int g, int vectors, const Body& body) {
        mov(scales_,
            ptr[args() + (reads_ ? offsetof(WeightsArgs, stored_scales) : offsetof(WeightsArgs, scales))]);
        if (g > 0) add(scales_, g * 4);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(scales_, vectors * scales_bytes());
        sub(count_, vectors * at_a_time());
        jnz(each, T_NEAR);
    }
    // From one vector of scales to the next: as many keys as it has, which fill it but for rows of several
    // vectors.
    int scales_bytes() const {
        return at_a_time() * (reads_ ? key_.scale_bytes() : key_.scales_stride() * 4);
    }

    // As integers, bits of larger magnitudes are larger, and those of NaN the largest.
    void emit_top(const Vec& top, const Vec& magnitude, int g) {
        reads_ ? emit_top_of_halves(top) : emit_top_of_numbers(top, magnitude, g);
        for (int distance = key_.weight_lanes(); distance < lanes(); distance *= 2) {
            swap_lanes(magnitude, top, distance);
            vpmaxsd(top, top, magnitude);
        }
    }
    // Twice as many keys a vector.
    void emit_top_of_halves(const Vec& top) {
        Temp mask(*this, "mask"), magnitude(*this, "magnitude");
        vmovups(mask, splat_bits(0x7fff7fff));
        std::vector<Vec> tops = vecs("top", std::min(4, kKeyPadding / (2 * at_a_time())));
        for (const Vec& v : tops) zero(v);
        for_each_vector_of_keys(0, 2 * int(tops.size()), [&] {
            for (size_t i = 0; i < tops.size(); ++i) {
                load_magnitudes(magnitude, mask, scales_ + 2 * int(i) * scales_bytes());
                vpmaxsw(tops[i], tops[i], magnitude);
            }
        });
        for (size_t i = 1; i < tops.size(); ++i) vpmaxsw(tops[0], tops[0], tops[i]);
        swap_lanes(top, tops[0], lanes() / 2);
        vpmaxsw(top, top, tops[0]);
        halves_to_floats(top);
        vpmaxsd(top, top, splat(kLeastTop));
        free(tops);
    }
    void load_magnitudes(const Vec& v, const Vec& mask, const RegExp& at) {
        const int each = key_.weight_lanes(), n = key_.groups();
        if (n == each) return bit_and(v, mask, ptr[at]);
        load_words_in_order(v, at, in_lists(2 * lanes(), each, n), 2 * at_a_time() * n);
        bit_and(v, v, mask);
    }
    void emit_top_of_numbers(const Vec& top, const Vec& magnitude, int g) {
        Temp mask(*this, "mask");
        vmovups(mask, splat_bits(0x7fffffff));
        std::vector<Vec> tops = vecs("top", std::min(4, kKeyPadding / at_a_time()));
        for (const Vec& v : tops) vmovups(v, splat(kLeastTop));
        for_each_vector_of_keys(g, int(tops.size()), [&] {
            for (size_t i = 0; i < tops.size(); ++i) {
                vandps(magnitude, mask, ptr[scales_ + int(i) * scales_bytes()]);
                vpmaxsd(tops[i], tops[i], magnitude);
            }
        });
        vmovaps(top, tops[0]);
        for (size_t i = 1; i < tops.size(); ++i) vpmaxsd(top, top, tops[i]);
        free(tops);
    }

    void load_related(const Vec& v, const Vec& inverse, const RegExp& at) {
        if (!reads_) return vmulps(v, inverse, ptr[at]);
        load_half_lists(v, at, key_.groups(), key_.weight_lanes());
        vmulps(v, v, inverse);
    }

    void emit_pairs(const Vec& inverse) {
        Temp first(*this, "scales of first keys"), second(*this, "of second keys");
        load_related(first, inverse, scales_);
        load_related(second, inverse, scales_ + scales_bytes());
        packs() ? pair_up(first, second, key_.weight_lanes()) : separate(first, second, key_.weight_lanes());
        if (rounds_probabilities()) return emit_words(first, second);
        for (int r = 0; r < key_.rows; ++r) {
            Temp low(*this, "low"), high(*this, "high");
            packs() ? load_lanes(high, row_at(r), order_)
                    : load_even_odd(low, high, row_at(r), key_.weight_lanes());
            vmulps(low, packs() ? high : low, first);
            vmulps(high, high, second);
            vcvtps2dq(low, low);
            vcvtps2dq(high, high);
            packs() ? vpackssdw(low, low, high) : join_words(low, low, high);
            vmovups(ptr[weights_ + r * weights_bytes()], *low);
        }
    }

    // Of scales, which are changed.
    void emit_words(const Vec& first, const Vec& second) {
        vcvtps2dq(first, first);
        vcvtps2dq(second, second);
        join_words(first, first, second);
        if (key_.scales_words()) return vmovups(ptr[weights_], first);
        for (int r = 0; r < key_.rows; ++r) {
            Temp weight(*this, "weight");
            load_lanes(weight, row_at(r), order_);  // pairs
            vpmulhrsw(weight, weight, first);
            vmovups(ptr[weights_ + r * weights_bytes()], *weight);
        }
    }

    void emit_factors(const Vec& top, int g) {
        for (int r = 0; r < key_.rows; ++r) {
            Temp factor(*this, "factor");
            emit_factor(factor, top, r);
            store_f32(factors_at(r, g), factor, key_.weight_lanes());
        }
    }

    const bool reads_ = key_.has_lists_of_scales();
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), factors_ = gpr("factors");
    std::vector<int> order_;  // of probabilities, or of pairs of them, in the lanes
};

// for each vector of scales, of as many keys as it holds:
//   for r in 0..R: weights[r][key][g] = p[r][key] * scale[key][g]
class FloatWeights : public WeightsEmitter {
public:
    explicit FloatWeights(const RowKey& key) : WeightsEmitter(key) {
        const Gpr scales = gpr("scales"), weights = gpr("weights");
        const int run = key_.scales_stride(), keys = lanes() / run;
        begin();
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(scales, ptr[args() + offsetof(WeightsArgs, scales)]);
        mov(weights, ptr[args() + offsetof(WeightsArgs, weights)]);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        Temp scale(*this, "scale");
        vmovups(scale, ptr[scales]);
        for (int r = 0; r < key_.rows; ++r) {
            Temp weight(*this, "weight");
            load_repeated(weight, row_at(r), run);
            vmulps(weight, weight, scale);
            vmovups(ptr[weights + r * weight_row_bytes(run * 4)], weight);
        }
        add(probabilities_, keys * 4);
        add(scales, vec_bytes());
        add(weights, vec_bytes());
        sub(count_, keys);
        jnz(each, T_NEAR);
        end();
    }
};

}  // namespace

bool folds_scales(const RowKey& values) {
    const int lanes = values.target->lanes(), group = scale_group(values.format);
    return values.products == Products::floats && !token_block_info(values.format.type) && group > 0 &&
           group % (2 * lanes) == 0 && values.numbers() == 1 && values.scales_stride() <= lanes &&
           4 * values.rows * values.scales_stride() < values.padded();
}

bool has_scaled_words(const RowKey& values) {
    const quire_format rows = row_format(values.format);
    return (rows.type == QUIRE_INT8 || rows.type == QUIRE_INT4) && has_words(rows);
}

bool reads_value_scales(const RowKey& values) {
    const bool of_digits = values.products == Products::three_bytes || values.tile_digits() > 0;
    const bool of_integers = values.words() || of_digits || (values.bytes() && has_value_runs(values));
    if (token_block_info(values.format.type)) return values.words();
    return of_integers && values.has_lists_of_scales();
}

Status generate_weights(const RowKey& values, std::vector<uint8_t>* code) {
    if (values.scales_tiles()) return generate_weights_scaled_amx(values, code);
    if (takes_value_amx(values)) return generate_weights_amx(values, code);
    if (values.products == Products::three_bytes) return generate_weights_fours(values, code);
    return values.words() || values.bytes() ? Weights(values).finish(code)
                                            : FloatWeights(values).finish(code);
}

}  // namespace quire::jit
