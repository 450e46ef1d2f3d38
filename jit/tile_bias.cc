#include "jit/tile_bias.h"

#include <cstddef>
#include <limits>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

constexpr float kTiny = 0x1p-120f;

// for key in 0..count step 4:
//   x[i] = four keys of rows i, i + 4, i + 8 .., in 128 bits each
//   bias[i] = max(x[i] * log2 e, lowest) + x[i] * tiny: what is finite stays so, and only -Inf is -Inf
//   bias[key + j][rows] = dwords j of all x[i]
class TileBias : public Emitter {
public:
    TileBias(const Target& target, quire_type type)
        : Emitter(target), type_(type), key_bytes_(type_bits(type) / 8) {
        begin();
        mov(rows_, ptr[args() + offsetof(TileBiasArgs, rows)]);
        mov(bias_, ptr[args() + offsetof(TileBiasArgs, bias)]);
        mov(stride_, ptr[args() + offsetof(TileBiasArgs, stride)]);
        mov(count_, ptr[args() + offsetof(TileBiasArgs, count)]);
        for (int i = 0; i < lanes() / 4; ++i) row_.push_back(gpr("row " + std::to_string(i)));
        vmovups(lowest_, splat(std::numeric_limits<float>::lowest()));
        xor_(at_, at_);
        Label each;
        L(each);
        for (int i = 0; i < 4; ++i) emit_rows(x_[size_t(i)], i);
        transpose_dwords(x_);
        for (const Vec& x : x_) {
            vmovups(ptr[bias_], x);
            add(bias_, stride_);
        }
        add(at_, 4 * key_bytes_);
        sub(count_, 4);
        jnz(each, T_NEAR);
        end();
    }

private:
    void emit_rows(const Vec& bias, int first) {
        stage("rows from " + std::to_string(first));
        std::vector<RegExp> at;
        for (size_t k = 0; k < row_.size(); ++k) {
            mov(row_[k], ptr[rows_ + (first + 4 * int(k)) * 8]);
            at.push_back(row_[k] + at_);
        }
        Temp x(*this, "x");
        load_fours(type_, x, at);
        vmulps(bias, x, splat(kLog2e));
        vmaxps(bias, lowest_, bias);  // NaN is the second source, and stays
        vfmadd231ps(bias, x, splat(kTiny));
    }

    const quire_type type_;
    const int key_bytes_;
    const Gpr rows_ = gpr("rows"), bias_ = gpr("bias"), stride_ = gpr("stride"), count_ = gpr("count"),
              at_ = gpr("at");
    std::vector<Gpr> row_;
    const Vec lowest_ = vec("lowest");
    const std::vector<Vec> x_ = vecs("x", 4);
};

}  // namespace

Status generate_tile_bias(const Target& target, quire_type type, std::vector<uint8_t>* code) {
    return TileBias(target, type).finish(code);
}

}  // namespace quire::jit
