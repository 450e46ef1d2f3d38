#include "jit/tile_bias.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

constexpr float kTiny = 0x1p-120f;

// for key in 0..count step 4 (eight at a time, while there are):
//   x[i] = four keys of rows i, i + 4, i + 8 .., in 128 bits each
//   bias[i] = max(x[i] * log2 e, lowest) + x[i] * tiny: what is finite stays so, and only -Inf is -Inf
//   scores[key + j][rows] += dwords j of all x[i] (where fours of rows are the same, of x[0], four times
//   each); -Inf of the mask hides also where the score is NaN
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
        vmovups(lowest_, splat(std::numeric_limits<float>::lowest()));
        xor_(at_, at_);
        Label fours, done;
        cmp(qword[args() + offsetof(TileBiasArgs, fours)], 0);
        jne(fours, T_NEAR);
        for (int keys : {kKeys, 4}) for_keys(keys, [&] { emit_keys(keys); });
        jmp(done, T_NEAR);
        L(fours);
        load_addresses(0);
        for_keys(4, [&] {
            Temp x(*this, "x"), column(*this, "column");
            emit_rows(x, 0);
            for (int j = 0; j < 4; ++j) {
                vpermilps(column, x, uint8_t(j * 0x55));
                store(column);
            }
        });
        L(done);
        end();
    }

private:
    static constexpr int kKeys = 8;  // share the loads of addresses

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

    void emit_keys(int keys) {
        std::vector<std::vector<Vec>> x;  // [keys / 4][4]
        for (int k = 0; k < keys; k += 4) x.push_back(vecs("x", 4));
        for (int i = 0; i < 4; ++i) {
            load_addresses(i);
            for (int k = 0; k < keys; k += 4) emit_rows(x[size_t(k / 4)][size_t(i)], k);
        }
        for (const std::vector<Vec>& four : x) {
            transpose_dwords(four);
            for (const Vec& column : four) store(column);
            free(four);
        }
    }

    void load_addresses(int first) {
        stage("rows from " + std::to_string(first));
        for (size_t k = 0; k < row_.size(); ++k) mov(row_[k], ptr[rows_ + (first + 4 * int(k)) * 8]);
    }

    // Of keys `key` to `key` + 3 from at_ on.
    void emit_rows(const Vec& bias, int key) {
        std::vector<RegExp> at;
        for (const Gpr& row : row_) at.push_back(row + at_ + key * key_bytes_);
        Temp x(*this, "x");
        load_fours(type_, x, at);
        vmulps(bias, x, splat(kLog2e));
        vmaxps(bias, lowest_, bias);  // NaN is the second source, and stays
        vfmadd231ps(bias, x, splat(kTiny));
    }

    void store(const Vec& column) {
        Temp sum(*this, "sum");
        vaddps(sum, column, ptr[scores_]);
        replace_where_equal(sum, column, -INFINITY);
        vmovups(ptr[scores_], *sum);
        add(scores_, stride_);
    }

    const quire_type type_;
    const int key_bytes_;
    const Gpr rows_ = gpr("rows"), scores_ = gpr("scores"), stride_ = gpr("stride"), count_ = gpr("count"),
              at_ = gpr("at");
    std::vector<Gpr> row_;
    const Vec lowest_ = vec("lowest");
};

}  // namespace

Status generate_tile_bias(const Target& target, quire_type type, std::vector<uint8_t>* code) {
    return TileBias(target, type).finish(code);
}

}  // namespace quire::jit
