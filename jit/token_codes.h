// Codes of blocks of tokens (src/token_blocks.h), or of their plain rows: a lane is a dword of them.
#pragma once
#include "jit/emitter.h"
#include "src/format.h"

namespace quire::jit {

inline int codes_of_dword(const quire_format& format) {
    return 32 / type_bits(row_format(format).type);  // N
}

class TokenCodes {
public:
    TokenCodes(Emitter& e, const quire_format& format) : e_(e), bits_(32 / codes_of_dword(format)) {}

    int of_dword() const { return 32 / bits_; }           // N
    int pairs() const { return of_dword() / 2; }          // vectors of words
    int chunk_bytes() const { return kBlockTokens * 4; }  // of N elements of the keys

    // Keeps what number() needs in registers, where more than `spare` are free.
    void hold(int spare) const {
        if (bits_ == 4) e_.hold_nibble_numbers(spare);
    }
    // Code i of each lane as a number.
    void number(const Vec& out, const Vec& raw, int i) const {
        if (bits_ == 4) return e_.load_nibble(out, raw, i);
        const int left = 32 - bits_ * (i + 1);
        if (left) e_.vpslld(out, raw, uint8_t(left));
        e_.vpsrad(out, left ? out : raw, uint8_t(32 - bits_));
        e_.vcvtdq2ps(out, out);
    }
    // Codes i and i + N / 2 of each lane as words.
    void words(const Vec& out, const Vec& raw, int i) const {
        const int left = 16 - bits_ * (i + 1);
        if (left) e_.vpsllw(out, raw, uint8_t(left));
        e_.vpsraw(out, left ? out : raw, uint8_t(16 - bits_));
    }

private:
    Emitter& e_;
    const int bits_;
};

}  // namespace quire::jit
