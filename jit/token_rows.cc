#include "jit/token_rows.h"

#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

using Xbyak::Xmm;

// for each block, for each of its 16 tokens t:
//   rows[t] = its codes as a plain row:
//     keys: four dwords of four tokens are transposed                               emit_keys
//     values: bytes of four elements are gathered token by token, then the same;    emit_values
//             of nibbles those of two elements are joined after it
//   scales[t][g] = scales of the block[g][t]                                        emit_scales
class TokenRows : public Emitter {
public:
    TokenRows(const RowKey& key, Side side)
        : Emitter(*key.target),
          key_(key),
          info_(*token_block_info(key.format.type)),
          row_bytes_(int(bytes_of(row_format(key.format).type, key.dim))) {
        begin();
        mov(blocks_, ptr[args() + offsetof(TokenRowsArgs, blocks)]);
        mov(rows_, ptr[args() + offsetof(TokenRowsArgs, rows)]);
        mov(scales_, ptr[args() + offsetof(TokenRowsArgs, scales)]);
        mov(count_, ptr[args() + offsetof(TokenRowsArgs, count)]);
        Label each_block;
        L(each_block);
        mov(block_, ptr[blocks_]);
        side == Side::key ? emit_keys() : emit_values();
        emit_scales();
        add(blocks_, 8 * kBlockTokens);
        add(rows_, row_bytes_ * kBlockTokens);
        add(scales_, key_.groups() * 2 * kBlockTokens);
        sub(count_, kBlockTokens);
        jnz(each_block, T_NEAR);
        end();
    }

private:
    static Xmm x(const Vec& v) { return Xmm(v.getIdx()); }

    void emit_keys() {
        const int columns = row_bytes_ / 4;
        stage("keys");
        for (int column = 0; column < columns; column += 4)
            for (int token = 0; token < kBlockTokens; token += 4) {
                const int n = std::min(4, columns - column);
                const std::vector<Vec> v = vecs("columns", 4);
                for (int i = 0; i < n; ++i)
                    vmovups(x(v[size_t(i)]), ptr[block_ + ((column + i) * kBlockTokens + token) * 4]);
                for (int i = n; i < 4; ++i) zero(v[size_t(i)]);
                transpose_dwords(v);
                for (int t = 0; t < 4; ++t) store_bytes(row_at(token + t) + column * 4, v[size_t(t)], n * 4);
                free(v);
            }
    }

    void emit_values() {
        const int n = info_.codes_of_dword(), codes = info_.code_bits == 8 ? 16 : 32;  // of 16 bytes
        for (int token = 0; token < kBlockTokens; token += n) {
            stage("values of tokens from " + std::to_string(token));
            for (int element = 0; element < key_.dim; element += codes)
                info_.code_bits == 8 ? emit_bytes(token, element) : emit_nibbles(token, element);
        }
    }

    // v[i]: of 16 elements, or the 8 that are left, byte i of their dwords.
    void load_places(const std::vector<Vec>& v, int token, int element) {
        for (int i = 0; i < 4; ++i) {
            if (element + 4 * i >= key_.dim) {
                zero(v[size_t(i)]);
                continue;
            }
            const Xmm e = x(v[size_t(i)]);
            vmovups(e, ptr[block_ + (token / info_.codes_of_dword() * key_.dim + element + 4 * i) * 4]);
            std::vector<uint32_t> by_place = {0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703};
            by_place.resize(size_t(lanes()));
            vpshufb(e, e, constant(by_place));
        }
        transpose_dwords(v);
    }

    void emit_bytes(int token, int element) {
        const std::vector<Vec> v = vecs("elements", 4);
        load_places(v, token, element);
        for (int i = 0; i < 4; ++i)
            store_bytes(row_at(token + info_.token_of_place(i)) + element, v[size_t(i)],
                        std::min(16, key_.dim - element));
        free(v);
    }

    // 32 elements: of a byte the low nibble is of one token, the high one of another.
    void emit_nibbles(int token, int element) {
        const std::vector<Vec> v = vecs("elements", 4), later = vecs("later elements", 4);
        load_places(v, token, element);
        load_places(later, token, element + 16);
        Temp part(*this, "part"), rest(*this, "rest");
        for (int place = 0; place < 8; ++place) {
            join_nibbles(part, v[size_t(place / 2)], place % 2);
            join_nibbles(rest, later[size_t(place / 2)], place % 2);
            vpackuswb(x(part), x(part), x(rest));
            store_bytes(row_at(token + info_.token_of_place(place)) + element / 2, part,
                        std::min(32, key_.dim - element) / 2);
        }
        free(v);
        free(later);
    }

    // Words of two elements: of the bytes' low or high nibbles, the even element and 16 times the odd one.
    void join_nibbles(const Vec& to, const Vec& bytes, bool high) {
        if (high) vpsrlw(x(to), x(bytes), 4);
        bit_and(x(to), x(high ? to : bytes), splat_bits(0x0f0f0f0f));
        vpmaddubsw(x(to), x(to), splat_bits(0x10011001));
    }

    void emit_scales() {
        stage("scales");
        const int at = info_.code_bytes(key_.dim);
        for (int g = 0; g < key_.groups(); ++g)
            for (int t = 0; t < kBlockTokens; ++t) {
                movzx(eax, word[block_ + at + (g * kBlockTokens + t) * 2]);
                mov(word[scales_ + (t * key_.groups() + g) * 2], ax);
            }
    }

    RegExp row_at(int token) const { return rows_ + token * row_bytes_; }

    const RowKey key_;
    const TokenBlockInfo info_;
    const int row_bytes_;
    const Gpr blocks_ = gpr("blocks"), rows_ = gpr("rows"), scales_ = gpr("scales"), count_ = gpr("count"),
              block_ = gpr("block");
};

}  // namespace

Status generate_token_rows(const RowKey& key, Side side, std::vector<uint8_t>* code) {
    return TokenRows(key, side).finish(code);
}

}  // namespace quire::jit
