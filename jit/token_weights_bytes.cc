// Weights that are bytes, of blocks of tokens: the lanes are tokens.
#include "jit/token_weights.h"
#include "jit/weights_bytes_emitter.h"
#include "jit/weights_runs.h"

namespace quire::jit {
namespace {

// Scales: [block][groups][16].
class TokenWeightsBytes : public WeightsBytesEmitter {
public:
    explicit TokenWeightsBytes(const RowKey& key) : WeightsBytesEmitter(key) { generate(); }

private:
    static constexpr int kSet = ValueBytes::kSet;

    // A dword of codes has the even tokens in its lower half, the odd ones in its upper: low nibbles are of
    // the first four of these, high ones of the others.
    void hold_order() override {
        order_ = vec("order of tokens");
        vmovups(order_, constant({0, 4, 1, 5, 2, 6, 3, 7}));
    }
    void drop_order() override { free(order_); }
    void load_ordered(const Vec& v, const RegExp& at) override { vpermps(y(v), y(order_), ptr[at]); }

    // body() for each block.
    template <typename Body>
    void for_each_block(int set, const Body& body) {
        const int row = kBlockTokens * 4;
        for_each_scales(kBlockTokens, set * kSet * row, key_.groups() * row, body);
    }
    // Of a group of the set, or its last one.
    RegExp scales_at(int set, int group, int token) const {
        const int last = groups_of(set) - 1;
        return scales_ + ((group < last ? group : last) * kBlockTokens + token) * 4;
    }

    // As integers, bits of larger numbers are larger, and those of NaN the largest.
    void emit_top(const Vec& top, int set) override {
        const std::vector<Vec> of_groups = vecs("tops", kSet);
        Temp signs(*this, "signs"), scale(*this, "scale");
        for (const Vec& v : of_groups) vmovups(v, splat(kLeastTop));
        zero(signs);
        for_each_block(set, [&] {
            for (int g = 0; g < groups_of(set); ++g)
                for (int token = 0; token < kBlockTokens; token += lanes()) {
                    vmovups(scale, ptr[scales_at(set, g, token)]);
                    vpmaxsd(of_groups[size_t(g)], of_groups[size_t(g)], scale);
                    vpor(signs, signs, scale);
                }
        });
        fold_quarters(of_groups.data(), [&](const Vec& to, const Vec& from) { vpmaxsd(to, to, from); });
        swap_lanes(scale, of_groups[0], lanes() / 2);
        vpmaxsd(top, scale, of_groups[0]);
        write_signs(signs, set, 0xff);
        free(of_groups);
    }

    void emit_scales(const Vec& top, int set) override {
        const std::vector<Vec> inverse = vecs("inverse", kSet);
        vmovups(inverse[0], splat(of_scale()));
        vdivps(inverse[0], inverse[0], top);
        vmovups(ptr[words_], x(inverse[0]));
        for (int g = 0; g < kSet; ++g) broadcast(inverse[size_t(g)], ptr[words_ + g * 4]);
        hold_order();
        for_each_block(set, [&] {
            for (int token = 0; token < kBlockTokens; token += kTurn)
                for (int g = 0; g < kSet; g += 2) {
                    Temp first(*this, "group"), second(*this, "next group");
                    for (const Temp* scale : {&first, &second}) {
                        const int group = g + (scale == &second);
                        load_ordered(*scale, scales_at(set, group, token));
                        vmulps(*scale, *scale, inverse[size_t(group)]);
                        vcvtps2dq(*scale, *scale);
                    }
                    vpackssdw(first, first, second);
                    vmovups(ptr[words_ + (token / kTurn * 2 + g / 2) * vec_bytes()], *first);
                }
            add(words_, kBlockTokens / kTurn * 2 * vec_bytes());
        });
        drop_order();
        free(inverse);
    }

    Vec order_;
};

}  // namespace

Status generate_token_weights_bytes(const RowKey& values, std::vector<uint8_t>* code) {
    if (has_value_runs(values)) return generate_weights_runs(values, code);
    return TokenWeightsBytes(values).finish(code);
}

}  // namespace quire::jit
