#include "jit/tile_bias.h"

#include <cmath>
#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

// for key in 0..count step L, then step 4:
//   x[i] = L keys of row i; or four keys of rows i, i + 4, i + 8 .., in 128 bits each
//   bias[j] = lane j of all x[i], or dwords j (where fours of rows are the same, of x[0], four times each)
//   scores[key + j][rows] += max(bias[j], least) * log2 e: what is finite hides no key; but -Inf where
//   bias[j] is, also if the score is NaN
//   max = max(max, that)
class TileBias : public Emitter {
public:
    TileBias(const Target& target, quire_type type)
        : Emitter(target), type_(type), key_bytes_(type_bits(type) / 8) {
        begin();
        mov(rows_, ptr[args() + offsetof(TileBiasArgs, rows)]);
        mov(scores_, ptr[args() + offsetof(TileBiasArgs, scores)]);
        mov(stride_, ptr[args() + offsetof(TileBiasArgs, stride)]);
        mov(count_, ptr[args() + offsetof(TileBiasArgs, count)]);
        for (int i = 0; i < lanes() / 4; ++i) row_.push_back(gpr("row " + std::to_string(i)));
        vmovups(least_, splat(kLeastOfMask));
        vmovups(log2e_, splat(kLog2e));
        vmovups(hidden_, splat(-INFINITY));
        mov(rax, ptr[args() + offsetof(TileBiasArgs, max)]);
        vmovups(max_, ptr[rax]);
        mov(at_, ptr[args() + offsetof(TileBiasArgs, first)]);
        Label fours, done;
        cmp(qword[args() + offsetof(TileBiasArgs, fours)], 0);
        jne(fours, T_NEAR);
        for_keys(lanes(), [&] { emit_square(); });
        for_keys(kBiasKeys, [&] { emit_keys(); });
        jmp(done, T_NEAR);
        L(fours);
        load_addresses(0);
        for_keys(kBiasKeys, [&] {
            Temp x(*this, "x"), bias(*this, "bias");
            emit_rows(x);
            for (int j = 0; j < 4; ++j) {
                vpermilps(bias, x, uint8_t(j * 0x55));
                add_to_scores(bias);
            }
        });
        L(done);
        mov(rax, ptr[args() + offsetof(TileBiasArgs, max)]);
        vmovups(ptr[rax], max_);
        end();
    }

private:
    // While there are so many.
    template <typename Body>
    void for_keys(int keys, const Body& body) {
        Label each, done;
        L(each);
        cmp(count_, keys);
        jl(done, T_NEAR);
        body();
        add(at_, keys * key_bytes_);
        sub(count_, keys);
        jmp(each, T_NEAR);
        L(done);
    }

    void emit_square() {
        stage("square");
        const std::vector<Vec> square = vecs("x", lanes());
        for (int i = 0; i < lanes(); ++i) {
            mov(rax, ptr[rows_ + i * 8]);
            load_number(type_, square[size_t(i)], rax + at_, lanes());
        }
        transpose(square);
        for (const Vec& bias : square) add_to_scores(bias);
        free(square);
    }

    void emit_keys() {
        const std::vector<Vec> four = vecs("x", 4);
        for (int i = 0; i < 4; ++i) {
            load_addresses(i);
            emit_rows(four[size_t(i)]);
        }
        transpose_dwords(four);
        for (const Vec& bias : four) add_to_scores(bias);
        free(four);
    }

    void load_addresses(int first) {
        stage("rows from " + std::to_string(first));
        for (size_t k = 0; k < row_.size(); ++k) mov(row_[k], ptr[rows_ + (first + 4 * int(k)) * 8]);
    }

    // Four keys from at_ on of each row whose address is in a register.
    void emit_rows(const Vec& x) {
        std::vector<RegExp> at;
        for (const Gpr& row : row_) at.push_back(row + at_);
        load_fours(type_, x, at);
    }

    // Of the next key; clobbers it.
    void add_to_scores(const Vec& bias) {
        change_unless_equal(bias, hidden_, [&](const Vec& d, const Vec& x) {
            vmaxps(d, least_, x);  // NaN is the second source, and stays
            vfmadd213ps(d, log2e_, ptr[scores_]);
        });
        vmovups(ptr[scores_], bias);
        vmaxps(max_, bias, max_);  // a NaN score leaves it as it is
        add(scores_, stride_);
    }

    const quire_type type_;
    const int key_bytes_;
    const Gpr rows_ = gpr("rows"), scores_ = gpr("scores"), stride_ = gpr("stride"), count_ = gpr("count"),
              at_ = gpr("at");
    std::vector<Gpr> row_;
    const Vec least_ = vec("least"), log2e_ = vec("log2 e"), hidden_ = vec("hidden"), max_ = vec("max");
};

}  // namespace

Status generate_tile_bias(const Target& target, quire_type type, std::vector<uint8_t>* code) {
    return TileBias(target, type).finish(code);
}

}  // namespace quire::jit
