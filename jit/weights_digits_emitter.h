// Weights that are whole numbers relative to the largest one of their query row and group in a block: what
// those of vectors and those of tiles of AMX have in common.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "jit/weights_emitter.h"

namespace quire::jit {

// Form: ValueFours, or ValueAmx.
template <typename Form>
class WeightsOfDigits : public WeightsEmitter {
protected:
    explicit WeightsOfDigits(const RowKey& key) : WeightsEmitter(key), form_(key) {}

    struct Rows {
        int first, count;
        int padded() const { return (count + 3) / 4 * 4; }
    };

    void set_up() {
        mov(factors_, ptr[args() + offsetof(WeightsArgs, factors)]);
        mov(all_, ptr[args() + offsetof(WeightsArgs, weights)]);
    }

    // Of L keys.
    int scales_bytes() const { return (of_tokens() ? key_.groups() : key_.scales_stride()) * vec_bytes(); }

    // body() for each L keys.
    template <typename Body>
    void for_each_keys(const Body& body) {
        mov(scales_, ptr[args() + offsetof(WeightsArgs, scales)]);
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        Label each;
        L(each);
        body();
        add(scales_, scales_bytes());
        add(probabilities_, vec_bytes());
        sub(count_, lanes());
        jnz(each, T_NEAR);
    }

    // [keys][S] become [keys / L][S][L]. Of adjacent rows as the cache has them.
    void transpose_scales() {
        stage("scales");
        const bool reads = reads_value_scales(key_);
        const Gpr stored = gpr("stored");
        if (reads) mov(stored, ptr[args() + offsetof(WeightsArgs, stored_scales)]);
        for_each_keys([&] {
            const std::vector<Vec> v = vecs("scales", key_.scales_stride());
            for (int i = 0; i < int(v.size()); ++i)
                reads ? load_half_lists(v[size_t(i)],
                                        stored + i * lanes() / key_.scales_stride() * key_.scale_bytes(),
                                        key_.groups(), key_.scales_stride())
                      : vmovups(v[size_t(i)], ptr[scales_ + i * vec_bytes()]);
            if (reads) add(stored, lanes() * key_.scale_bytes());
            const std::vector<Vec> of_groups = separated(v);
            for (int g = 0; g < form_.groups; ++g)
                vmovups(ptr[scales_ + g * vec_bytes()], of_groups[size_t(g)]);
            free(v);
        });
        free(stored);
    }

    // d = p[r] * scale of L keys.
    void load_product(const Vec& d, const Vec& scale, int r) { vmulps(d, scale, ptr[row_at(r)]); }

    // As unsigned integers, bits of larger magnitudes are larger, and those of NaN the largest: with a sign,
    // too, which 0 * Inf has.
    void emit_tops(const std::vector<Vec>& top, int g, const Rows& rows) {
        Temp scale(*this, "scale"), product(*this, "product"), mask(*this, "mask");
        vmovups(mask, splat_bits(0x7fffffff));
        for (const Vec& v : top) vmovups(v, splat(kLeastTop));
        for_each_keys([&] {
            if (keeps_products()) vmovups(scale, ptr[scales_ + g * vec_bytes()]);
            if (!keeps_products()) vpandd(scale, mask, ptr[scales_ + g * vec_bytes()]);
            for (int r = 0; r < rows.count; ++r) {
                load_product(product, scale, rows.first + r);
                if (keeps_products()) keep_product(product, mask, r);
                vpmaxud(top[size_t(r)], top[size_t(r)], product);
            }
            next_products();
        });
    }
    // Whether products are stored as they are made, by keep_product(), which leaves their magnitudes.
    virtual bool keeps_products() const { return false; }
    virtual void keep_product(const Vec&, const Vec& /* mask */, int /* row */) {}
    virtual void next_products() {}  // after all rows

    void emit_factors(int g, const Rows& rows) {
        stage("factors of group " + std::to_string(g));
        const std::vector<Vec> top = vecs("top", rows.padded());
        emit_tops(top, g, rows);
        Temp factor(*this, "factor");
        const auto x = [](const Vec& v) { return Xbyak::Xmm(v.getIdx()); };
        for (int first = 0; first < rows.padded(); first += 4) {
            const Vec* const four = &top[size_t(first)];
            fold_four(four, [&](const Vec& to, const Vec& from) { vpmaxud(to, to, from); });
            vmovups(factor, splat(form_.largest()));
            vdivps(x(factor), x(factor), x(four[0]));
            vmovups(ptr[all_ + form_.inverse_at(g, rows.first + first)], x(factor));
            vmovups(ptr[factors_ + form_.factor_at(g, rows.first + first)], x(four[0]));
        }
        free(top);
    }
    void load_inverses(const std::vector<Vec>& inverse, int g, const Rows& rows) {
        for (int r = 0; r < rows.count; ++r)
            broadcast(inverse[size_t(r)], ptr[all_ + form_.inverse_at(g, rows.first + r)]);
    }

    // Of two digits, with 128 added to both: a byte is a digit, and 128.
    static constexpr int kHalfDigits = 0x8080;
    // The last bit of a number of this size is 1: what is added to it is a word in its lower half.
    static constexpr float kOfWords = 3 << 22;
    std::vector<Vec> two_digits(const std::vector<Vec>& n, const Vec& order) {
        for (size_t i = 0; i < n.size(); i += 2) {
            vpslld(n[i + 1], n[i + 1], 16);
            vmovdqu16(n[i + 1] | k1, n[i]);
            vpshufb(n[i + 1], n[i + 1], order);
        }
        vpunpcklqdq(n[0], n[1], n[3]);
        vpunpckhqdq(n[1], n[1], n[3]);
        return {n[0], n[1]};
    }
    // Of each 128 bits, {a0 b0 a1 b1 ..} of words: {low a, low b, high a, high b}, of four each.
    std::vector<uint32_t> digits_of_two_fours() const {
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < uint32_t(lanes()); ++i)
            order.push_back(0x0c080400 + 0x01010101 * (i % 2 * 2 + i % 4 / 2));
        return order;
    }

    // Of each 128 bits: byte d of the four lanes becomes lane d.
    std::vector<uint32_t> digits_of_four() const {
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < uint32_t(lanes()); ++i) order.push_back(0x0c080400 + 0x01010101 * (i % 4));
        return order;
    }

    const Form form_;
    // all: where WeightsArgs::weights begins.
    const Gpr scales_ = gpr("scales"), weights_ = gpr("weights"), all_ = gpr("all weights"),
              factors_ = gpr("factors");
};

}  // namespace quire::jit
