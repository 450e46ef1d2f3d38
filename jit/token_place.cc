#include "jit/token_place.h"

#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

using Xbyak::Xmm;

// for each turn of as many tokens as share dwords of a block, or fill a vector:
//   for each 16 bytes of their rows:
//     keys: four dwords of four tokens are transposed                                emit_keys
//     values: nibbles become bytes of two tokens each, in the order of elements      emit_nibbles
//             bytes of an element are brought side by side                           emit_dwords
class TokenPlacer : public Emitter {
public:
    TokenPlacer(const RowKey& key, Side side)
        : Emitter(*key.target),
          key_(key),
          info_(*token_block_info(key.format.type)),
          row_bytes_(info_.row_bytes(key.dim)),
          stride_(info_.placed_row_bytes(key.dim, key.format.quant_group)) {
        begin();
        mov(rows_, ptr[args() + offsetof(TokenPlaceArgs, rows)]);
        mov(codes_, ptr[args() + offsetof(TokenPlaceArgs, codes)]);
        mov(turns_, ptr[args() + offsetof(TokenPlaceArgs, turns)]);
        Label each_turn;
        L(each_turn);
        for (int from = 0; from < row_bytes_; from += 16)
            side == Side::key ? emit_keys(from) : emit_values(from);
        const int tokens = info_.placed_together(side);
        add(rows_, tokens * stride_);
        add(codes_, info_.codes_at(side, key_.dim, tokens));
        dec(turns_);
        jnz(each_turn, T_NEAR);
        end();
    }

private:
    static Xmm x(const Vec& v) { return Xmm(v.getIdx()); }

    void load(const Vec& v, int token, int from) {
        load_bytes(v, rows_ + token * stride_ + from, std::min(16, row_bytes_ - from));
    }

    void emit_keys(int from) {
        stage("keys, byte " + std::to_string(from));
        const std::vector<Vec> v = vecs("columns", 4);
        for (int t = 0; t < 4; ++t) load(v[size_t(t)], t, from);
        transpose_dwords(v);
        for (int i = 0; i < 4 && from + 4 * i < row_bytes_; ++i)
            vmovups(ptr[codes_ + (from / 4 + i) * kBlockTokens * 4], x(v[size_t(i)]));
        free(v);
    }

    void emit_values(int from) {
        stage("values, byte " + std::to_string(from));
        const int element = from * 8 / info_.code_bits;
        std::vector<Vec> v = vecs("bytes", 4);
        if (info_.code_bits == 8) {
            for (int i = 0; i < 4; ++i) load(v[size_t(i)], info_.token_of_place(i), from);
            emit_dwords(v, element);
        } else {
            const std::vector<Vec> later = vecs("later bytes", 4);
            for (int i = 0; i < 4; ++i) emit_nibbles(v[size_t(i)], later[size_t(i)], 2 * i, from);
            emit_dwords(v, element);
            emit_dwords(later, element + 16);
            free(later);
        }
        free(v);
    }

    // Bytes of 16 elements, and of the 16 after them: the low nibbles of one token, the high of another's.
    void emit_nibbles(const Vec& v, const Vec& later, int place, int from) {
        Temp low(*this, "low"), high(*this, "high"), even(*this, "even"), part(*this, "part");
        load(low, info_.token_of_place(place), from);
        load(high, info_.token_of_place(place + 1), from);
        vpsllw(x(part), x(high), 4);
        bit_and(x(part), x(part), splat_bits(0xf0f0f0f0));
        bit_and(x(even), x(low), splat_bits(0x0f0f0f0f));
        bit_or(x(even), x(even), x(part));
        vpsrlw(x(part), x(low), 4);
        bit_and(x(part), x(part), splat_bits(0x0f0f0f0f));
        bit_and(x(high), x(high), splat_bits(0xf0f0f0f0));
        bit_or(x(high), x(high), x(part));  // of odd elements
        vpunpcklbw(x(v), x(even), x(high));
        vpunpckhbw(x(later), x(even), x(high));
    }

    // v[i]: byte i of the dwords of 16 elements from `element` on.
    void emit_dwords(const std::vector<Vec>& v, int element) {
        Temp low(*this, "low"), high(*this, "high");
        const Xmm a = x(v[0]), b = x(v[1]), c = x(v[2]), d = x(v[3]), l = x(low), h = x(high);
        vpunpcklbw(l, a, b);
        vpunpckhbw(h, a, b);
        vpunpcklbw(b, c, d);
        vpunpckhbw(d, c, d);
        vpunpcklwd(a, l, b);
        vpunpckhwd(b, l, b);
        vpunpcklwd(c, h, d);
        vpunpckhwd(d, h, d);
        for (int i = 0; i < 4 && element + 4 * i < key_.dim; ++i)
            vmovups(ptr[codes_ + (element + 4 * i) * 4], x(v[size_t(i)]));
    }

    const RowKey key_;
    const TokenBlockInfo info_;
    const int row_bytes_, stride_;
    const Gpr rows_ = gpr("rows"), codes_ = gpr("codes"), turns_ = gpr("turns");
};

}  // namespace

Status generate_token_place(const RowKey& key, Side side, std::vector<uint8_t>* code) {
    return TokenPlacer(key, side).finish(code);
}

}  // namespace quire::jit
