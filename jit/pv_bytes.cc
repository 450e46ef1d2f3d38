#include "jit/pv_bytes.h"

#include <algorithm>

#include "jit/pv_passes.h"
#include "jit/weights_bytes.h"

namespace quire::jit {
namespace {

// A turn, of eight keys: for each 16 elements: v[four][i] = codes of four keys a lane: lower and upper
// nibbles,
//                            where scales have signs times those; or half of 32 bytes
//                        for r, i: acc[r][i] += (weights * v[0][i] + weights * v[1][i]) * the run's factor
//                            by fours: weights * v[four][i] * the four's factor, both
// then                   output[r][w] = output[r][w] * rescale[r] + acc[r][w] * factor
//
// live: acc[R' * W] + v[4] + two of weights and two of products
class PvBytes : public PvPasses {
public:
    explicit PvBytes(const RowKey& key) : PvPasses(key), form_(key) { generate(); }

private:
    static constexpr int kAccumulators = 8, kParts = 2, kFours = 2;

    int keys_a_turn() const override { return ValueBytes::kTurn; }
    int rows_a_pass() const override {
        const int passes = (key_.rows * kParts + kAccumulators - 1) / kAccumulators;
        return (key_.rows + passes - 1) / passes;
    }
    int widest(int rows) const override {
        return std::min(kMostWidth, kAccumulators / rows / kParts * kParts);
    }
    int step() const override { return kParts; }
    int turn_bytes() const override { return ValueBytes::kTurnBytes; }

    int group_of(int vec) const { return vec * lanes() / scale_group(key_.format); }
    int set_of(int vec) const { return group_of(vec) / ValueBytes::kSet; }
    int in_set(int vec) const { return group_of(vec) % ValueBytes::kSet * 4; }

    void emit_begin(const std::vector<Vec>& acc, const Pass&) override {
        for (const Vec& v : acc) zero(v);
    }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int w = 0; w < pass.width; w += kParts) {
            const int vec = pass.vec + w;
            const std::vector<Vec> v = vecs("codes", kFours * kParts);
            emit_values(v, 0, pass, [&] { emit_codes(v, vec); });
            for (int r = 0; r < pass.rows; ++r)
                emit_row(&acc[size_t(r * pass.width + w)], v, vec, pass.row + r);
            free(v);
        }
    }

    void emit_codes(const std::vector<Vec>& v, int vec) {
        if (form_.by_fours()) return emit_bytes(v, vec);
        const int at = bytes_of_pair(vec);
        const NibbleBytes bytes = block() ? NibbleBytes{at, vec % 4 != 0, block()->zero}
                                          : NibbleBytes::of_row(at, key_.row_bytes());
        for (int four = 0; four < kFours; ++four) {
            const Vec* const of_four = &v[size_t(four * kParts)];
            load_nibbles_of_four(
                of_four[0], of_four[1], [&](int key) { return rows_.in_turn(4 * four + key, row_); }, bytes);
            if (form_.signs) emit_signs(of_four, vec, four);
        }
    }
    void emit_bytes(const std::vector<Vec>& v, int vec) {
        const int at = block() ? vec / 4 * block()->bytes + block()->codes_at : vec / 4 * 32;
        for (int four = 0; four < kFours; ++four)
            load_half_of_four(
                v[size_t(four * kParts)], v[size_t(four * kParts + 1)],
                [&](int key) { return rows_.in_turn(4 * four + key, row_); }, at, vec % 4 != 0);
    }
    void emit_signs(const Vec* codes, int vec, int four) {
        Temp signs(*this, "signs");
        broadcast(signs,
                  ptr[weights_ + form_.signs_at(set_of(vec)) + four * ValueBytes::kSet * 4 + in_set(vec)]);
        for (int i = 0; i < kParts; ++i) vpsignb(codes[i], codes[i], signs);
    }

    void emit_row(const Vec* acc, const std::vector<Vec>& v, int vec, int row) {
        if (form_.by_fours()) return emit_row_by_fours(acc, v, vec, row);
        Temp first(*this, "weights"), second(*this, "of last four"), sum(*this, "sum"), other(*this, "other");
        const RegExp weights = weights_ + form_.weights_at(row, set_of(vec)) + in_set(vec);
        broadcast(first, ptr[weights]);
        broadcast(second, ptr[weights + ValueBytes::kSet * 4]);
        for (int i = 0; i < kParts; ++i) {
            vpmaddubsw(sum, first, v[size_t(i)]);
            vpmaddubsw(other, second, v[size_t(kParts + i)]);
            vpaddw(sum, sum, other);
            vpmaddwd(sum, sum, ptr[weights_ + form_.runs_at(row, 0)]);
            vpaddd(acc[i], acc[i], sum);
        }
    }
    void emit_row_by_fours(const Vec* acc, const std::vector<Vec>& v, int vec, int row) {
        Temp weights(*this, "weights"), sum(*this, "sum");
        for (int four = 0; four < kFours; ++four) {
            const int of_four =
                form_.weights_at(row, set_of(vec)) + in_set(vec) + four * ValueBytes::kSet * 4;
            broadcast(weights, ptr[weights_ + of_four]);
            for (int i = 0; i < kParts; ++i) {
                vpmaddubsw(sum, weights, v[size_t(four * kParts + i)]);
                vpmaddwd(sum, sum, ptr[weights_ + form_.runs_at(row, four)]);
                vpaddd(acc[i], acc[i], sum);
            }
        }
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; w += kParts)
                emit_output(&acc[size_t(r * pass.width + w)], pass.row + r, pass.vec + w);
    }

    int output_vec(int vec) const { return form_.by_fours() ? half_of_32(vec) : vec_of_pair(vec); }
    void emit_output(const Vec* sums, int row, int vec) {
        Temp factor(*this, "factor");
        broadcast(factor, ptr[scales_ + form_.factor_at(row, set_of(vec)) + in_set(vec)]);
        for (int i = 0; i < kParts; ++i) {
            vcvtdq2ps(sums[i], sums[i]);
            vmulps(sums[i], sums[i], factor);
        }
        if (form_.by_fours())
            restore_pairs(sums[0], sums[1]);
        else if (!block())
            interleave(sums[0], sums[1]);
        broadcast(factor, ptr[rescale_ + row * 4]);
        for (int i = 0; i < kParts; ++i) {
            const RegExp output = output_at(row, output_vec(vec + i));
            vfmadd231ps(sums[i], factor, ptr[output]);
            vmovups(ptr[output], sums[i]);
        }
    }

    const ValueBytes form_;
};

}  // namespace

Status generate_pv_bytes(const RowKey& key, std::vector<uint8_t>* code) { return PvBytes(key).finish(code); }

}  // namespace quire::jit
