// Codes of blocks of tokens (src/token_blocks.h), or of plain rows and ggml's blocks that are brought into
// their order: a lane is a dword of them.
#pragma once
#include "jit/emitter.h"
#include "src/blocks.h"
#include "src/format.h"

namespace quire::jit {

inline int codes_of_dword(const quire_format& format) {
    return is_of_nibbles(row_format(format)) ? 8 : 4;  // N
}

// The element of code i of a row's dword. ggml's nibbles are 16 elements, then the next 16.
inline int element_of_code(const quire_format& format, int dword, int i) {
    const int n = codes_of_dword(format);
    if (!block_info(format.type) || n == 4) return dword * n + i;
    return dword / 4 * 32 + dword % 4 * 4 + i / 2 + i % 2 * 16;
}

// What codes at the upper end of a lane are to be multiplied by.
inline float top_unit(const quire_format& format) {
    return 1.f / float(1u << (32 - 32 / codes_of_dword(format)));
}

// Whether tops may be multiplied by these scales: of float32 some are so large that what tops are beside
// codes makes sums infinite, or a query too small to be a number.
inline bool allows_tops(const quire_format& format) {
    return !is_quantised(format) || format.scale_type == QUIRE_F16;
}

class TokenCodes {
public:
    TokenCodes(Emitter& e, const quire_format& format) : e_(e), bits_(32 / codes_of_dword(format)) {}

    int of_dword() const { return 32 / bits_; }   // N
    int pairs() const { return of_dword() / 2; }  // vectors of words

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
    // The same / top_unit(): a code at the upper end of its lane, where nothing has to be shifted back.
    // `top`: of load_top().
    void top_number(const Vec& out, const Vec& top, const Vec& raw, int i) const {
        const int left = 32 - bits_ * (i + 1);
        if (left) e_.vpslld(out, raw, uint8_t(left));
        e_.vpand(out, left ? out : raw, top);
        e_.vcvtdq2ps(out, out);
    }
    // Of dwords in memory, of which up to 3 bytes before the first may be read: a code that ends a byte is
    // the upper end of the four bytes up to there.
    void top_number(const Vec& out, const Vec& top, const RegExp& dwords, int i) const {
        e_.vpand(out, top, e_.ptr[dwords + (i * bits_ / 8 - 3)]);
        e_.vcvtdq2ps(out, out);
    }
    bool ends_byte(int i) const { return (i + 1) * bits_ % 8 == 0; }
    void load_top(const Vec& top) const {
        e_.vpcmpeqd(top, top, top);
        e_.vpslld(top, top, uint8_t(32 - bits_));
    }
    // Codes i and i + N / 2 of each lane as words.
    void words(const Vec& out, const Vec& raw, int i) const {
        const int left = 16 - bits_ * (i + 1);
        if (left) e_.vpsllw(out, raw, uint8_t(left));
        e_.vpsraw(out, left ? out : raw, uint8_t(16 - bits_));
    }

    // The same at the upper ends of words, what is below them being 0.
    void top_words(const Vec& out, const Vec& raw, int i) const {
        const int left = 16 - bits_ * (i + 1);
        if (left) e_.vpsllw(out, raw, uint8_t(left));
        if (i > 0)
            e_.bit_and(out, left ? out : raw, e_.splat_bits((0xffffu << (16 - bits_) & 0xffff) * 0x10001));
    }

private:
    Emitter& e_;
    const int bits_;
};

}  // namespace quire::jit
