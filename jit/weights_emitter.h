// What integer weights of rows and of blocks of tokens have in common.
#pragma once
#include <cstddef>
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"
#include "jit/weights.h"

namespace quire::jit {

class WeightsEmitter : public Emitter {
protected:
    explicit WeightsEmitter(const RowKey& key) : Emitter(*key.target), key_(key) {}

    // Words, rather than numbers; those of bytes are products of words, of probabilities and of scales.
    bool of_words() const { return key_.words() || key_.bytes(); }
    bool of_products() const { return key_.bytes(); }
    // Probabilities are words of their own, as scales are.
    bool rounds_probabilities() const { return of_products() || key_.scales_words(); }
    int probability_bytes() const { return of_products() ? 2 : 4; }
    RegExp row_at(int r) const { return probabilities_ + r * kBlock * 4; }

    // Probabilities -> words, in their place, or where scaled words have them.
    void round_probabilities() {
        stage("probabilities");
        const Gpr rows = gpr("rows"), written = gpr("written"), to = gpr("to");
        const bool in_place = !key_.scales_words();
        mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
        mov(to,
            ptr[args() + (in_place ? offsetof(WeightsArgs, probabilities) : offsetof(WeightsArgs, weights))]);
        mov(rows, key_.rows);
        Label each_row, each;
        L(each_row);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        xor_(written, written);
        L(each);
        emit_probability_words(probabilities_ + written * 2, to + written);
        add(written, kTogether * 2);
        sub(count_, kTogether);
        jnz(each, T_NEAR);
        add(probabilities_, kBlock * 4);
        add(to, in_place ? kBlock * 4 : ScaledWords::kRowBytes);
        dec(rows);
        jnz(each_row, T_NEAR);
        free(rows);
        free(written);
        free(to);
    }
    float largest() const { return key_.scales_words() ? ScaledWords::kLargest : kLargestWord; }
    void emit_probability_words(const RegExp& from, const RegExp& to) {
        const std::vector<Vec> p = vecs("p", kTogether / lanes());
        for (size_t i = 0; i < p.size(); ++i) {
            vmovups(p[i], splat(largest()));
            vmulps(p[i], p[i], ptr[from + i * size_t(vec_bytes())]);
            vcvtps2dq(p[i], p[i]);
        }
        store_words(to, p);
        free(p);
    }

    // What words of 15 bits and a sign are relative to: probabilities are at most 1.
    void emit_inverse(const Vec& inverse, const Vec& top) {
        vmovups(inverse, splat(largest()));
        vdivps(inverse, inverse, top);
    }
    // factor = top of the scales / 32767 * what row r's probabilities are relative to. Of products, which are
    // of two words / 32768: another 32768 / 32767. Of scaled words both are in it.
    void emit_factor(const Vec& factor, const Vec& top, int r) {
        mov(rax, ptr[args() + offsetof(WeightsArgs, block)]);
        broadcast(factor, ptr[rax + r * 4]);
        const float of_scaled = ScaledWords(key_).unit() / (largest() * largest());
        vmulps(factor, factor,
               splat(key_.scales_words() ? of_scaled
                     : of_products()     ? 32768 / (kLargestWord * kLargestWord)
                                         : 1 / kLargestWord));
        vmulps(factor, factor, top);
    }

    // Lane i of each 128 bits of v[0] = what `into` makes of all lanes of v[i], of four vectors, which are
    // clobbered.
    void fold_four(const Vec* v, const FoldInto& into) {
        fold_quarters(v, into);
        Temp other(*this, "other");
        for (int distance = 4; distance < lanes(); distance *= 2) {
            swap_lanes(other, v[0], distance);
            into(v[0], *other);
        }
    }

    bool of_tokens() const { return token_block_info(key_.format.type) != nullptr; }
    // Of blocks of tokens: which keys the values' lanes have, four a lane.
    std::vector<uint32_t> tokens_of_fours() const {
        std::vector<uint32_t> tokens;
        const TokenBlockInfo* info = token_block_info(key_.format.type);
        const int n = info->codes_of_dword(), fours = n / 4;
        for (int i = 0; i < lanes(); ++i) {  // byte i % 4 of its four: every fours-th place of a dword
            const int place = i % 4 * fours + i % n / 4;
            tokens.push_back(uint32_t(i / n * n + info->token_of_place(place)));
        }
        return tokens;
    }

    // n vectors, as one list: of every n-th number from i on a vector, in the order of i.
    std::vector<Vec> separated(const std::vector<Vec>& v) {
        if (v.size() == 1) return v;
        std::vector<Vec> even, odd, all;
        for (size_t i = 0; i < v.size(); i += 2) {
            separate(v[i], v[i + 1], 1);
            even.push_back(v[i]);
            odd.push_back(v[i + 1]);
        }
        even = separated(even);
        odd = separated(odd);
        for (size_t i = 0; i < even.size(); ++i) {
            all.push_back(even[i]);
            all.push_back(odd[i]);
        }
        return all;
    }

    static constexpr int kTogether = 16;  // keys
    static_assert(kKeyPadding % kTogether == 0);

    const RowKey key_;
    const Gpr probabilities_ = gpr("probabilities"), count_ = gpr("count");
};

}  // namespace quire::jit
