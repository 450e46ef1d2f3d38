#include "jit/minima.h"

#include <algorithm>
#include <cstddef>

#include "jit/args.h"
#include "jit/byte_loader.h"
#include "jit/emitter.h"

namespace quire::jit {
namespace {

// for each vector of groups g, for r:                                                 emit_sums
//   sums[r][g] = -zero * block[r] * sum over keys of p[r][key] * minima[key][g]
// for r:                                                                              emit_output
//   output[r][d] = output[r][d] * rescale[r] + sums[r][the group of d]
//
// A vector holds the groups of as many keys as fit it.
class Minima : public Emitter {
public:
    explicit Minima(const RowKey& key)
        : Emitter(*key.target), key_(key), run_(std::min(key.scales_stride(), lanes())) {
        begin();
        mov(sums_, ptr[args() + offsetof(MinimaArgs, sums)]);
        mov(block_, ptr[args() + offsetof(MinimaArgs, block)]);
        for (int g = 0; g < key_.groups(); g += run_)
            for (int row = 0; row < key_.rows; row += kRows)
                emit_sums(g, row, std::min(kRows, key_.rows - row));
        mov(rescale_, ptr[args() + offsetof(MinimaArgs, rescale)]);
        mov(output_, ptr[args() + offsetof(MinimaArgs, output)]);
        times(key_.rows, "rows left", [&] { emit_output(); });
        mov(rescale_, ptr[args() + offsetof(MinimaArgs, rescale)]);
        Temp one(*this, "one");
        vmovups(one, splat(1));
        for (int row = 0; row < key_.rows; row += lanes()) vmovups(ptr[rescale_ + row * 4], *one);
        end();
    }

private:
    static constexpr int kRows = 8;  // a register each

    int keys() const { return lanes() / run_; }  // of a vector
    int sums_stride() const { return (key_.groups() + lanes() - 1) / lanes() * lanes(); }
    bool of_block() const { return key_.products != Products::three_bytes; }

    void emit_sums(int g, int row, int rows) {
        stage("groups from " + std::to_string(g) + ", rows from " + std::to_string(row));
        const std::vector<Vec> sums = vecs("sum", rows);
        for (const Vec& sum : sums) zero(sum);
        mov(probabilities_, ptr[args() + offsetof(MinimaArgs, probabilities)]);
        mov(minima_, ptr[args() + offsetof(MinimaArgs, minima)]);
        mov(count_, ptr[args() + offsetof(MinimaArgs, count)]);
        Label each;
        L(each);
        Temp minima(*this, "minima"), p(*this, "p");
        vmovups(minima, ptr[minima_ + g * 4]);
        for (int r = 0; r < rows; ++r) {
            load_repeated(p, probabilities_ + (row + r) * kBlock * 4, run_);
            vfmadd231ps(sums[size_t(r)], p, minima);
        }
        add(probabilities_, keys() * 4);
        add(minima_, keys() * key_.scales_stride() * 4);
        sub(count_, keys());
        jnz(each, T_NEAR);
        for (int r = 0; r < rows; ++r) {
            const Vec& sum = sums[size_t(r)];
            for (int distance = run_; distance < lanes(); distance *= 2) {
                swap_lanes(p, sum, distance);
                vaddps(sum, sum, p);
            }
            vmulps(sum, sum, splat(-float(byte_zero(key_.format))));
            if (of_block()) multiply_by_scalar(sum, block_ + (row + r) * 4);
            vmovups(ptr[sums_ + ((row + r) * sums_stride() + g) * 4], sum);
        }
        free(sums);
    }

    void emit_output() {
        stage("output");
        Temp rescale(*this, "rescale"), v(*this, "v"), sum(*this, "sum");
        broadcast(rescale, ptr[rescale_]);
        for (int vec = 0; vec < key_.vecs(); ++vec) {
            vmovups(v, ptr[output_ + vec * vec_bytes()]);
            broadcast(sum, ptr[sums_ + vec * lanes() / scale_group(key_.format) * 4]);
            vfmadd132ps(v, sum, rescale);
            vmovups(ptr[output_ + vec * vec_bytes()], *v);
        }
        add(output_, key_.padded() * 4);
        add(rescale_, 4);
        add(sums_, sums_stride() * 4);
    }

    const RowKey key_;
    const int run_;
    const Gpr sums_ = gpr("sums"), block_ = gpr("block"), probabilities_ = gpr("probabilities"),
              minima_ = gpr("minima"), count_ = gpr("count"), rescale_ = gpr("rescale"),
              output_ = gpr("output");
};

}  // namespace

Status generate_minima(const RowKey& values, std::vector<uint8_t>* code) {
    return Minima(values).finish(code);
}

}  // namespace quire::jit
