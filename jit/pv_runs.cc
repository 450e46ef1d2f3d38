#include "jit/pv_runs.h"

#include <algorithm>

#include "jit/pv_passes.h"
#include "jit/weights_runs.h"

namespace quire::jit {
namespace {

// A turn, of a run of keys: for each 32 elements: v[four] = their codes, four keys a lane
//                           for r, i: sum = the run's dot products of weights and v[four][i]
//                                     acc[r][w + i] += sum * the run's factor
// then                      output[r][w] = output[r][w] * rescale[r] + acc[r][w]
//
// live: acc[R' * W] + v[4 * 2] + the sums of two rows + a weight
class PvRuns : public PvPasses {
public:
    explicit PvRuns(const RowKey& key) : PvPasses(key), form_(key) { generate(); }

private:
    static constexpr int kAccumulators = 16, kFours = ValueRuns::kRun / 4, kTogether = 2;

    int keys_a_turn() const override { return ValueRuns::kRun; }
    int rows_a_pass() const override {
        const int passes = (key_.rows * step() + kAccumulators - 1) / kAccumulators;
        return (key_.rows + passes - 1) / passes;
    }
    int widest(int rows) const override {
        return std::min(kMostWidth, kAccumulators / rows / step() * step());
    }
    int step() const override { return ValueRuns::kVecs; }
    int turn_bytes() const override { return ValueRuns::kBytes; }
    bool asks_within() const override { return true; }

    bool of_nibbles() const { return is_of_nibbles(key_.format); }
    // Listed rows are not in the first level when they are read (docs/performance/decode-medium.md).
    bool in_order() const { return !of_nibbles() && !rows_.side_by_side(); }
    int group_of(int vec) const { return vec * lanes() / scale_group(key_.format); }
    int set_of(int vec) const { return group_of(vec) / ValueRuns::kSet; }
    int in_set(int vec) const { return group_of(vec) % ValueRuns::kSet * 4; }

    void emit_begin(const std::vector<Vec>& acc, const Pass&) override {
        for (const Vec& v : acc) zero(v);
        constexpr int kSpare = kFours * ValueRuns::kVecs + kTogether * ValueRuns::kVecs + 1;
        of_nibbles() ? hold_quarters_of_four(kSpare) : hold_bytes_of_four(kSpare, in_order());
    }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        const int pairs = (pass.rows + kTogether - 1) / kTogether, parts = pass.width / step() * pairs * 2;
        int part = 0;
        for (int w = 0; w < pass.width; w += step()) {
            const int vec = pass.vec + w;
            const std::vector<Vec> v = vecs("codes", kFours * step());
            emit_values(v, w / step(), pass, [&] { emit_codes(v, byte_of(vec)); });
            for (int r = 0; r < pass.rows; r += kTogether) {
                emit_rows(&acc[size_t(r * pass.width + w)], v, pass, r, vec,
                          [&] { emit_asks(pass, part++, parts); });
            }
            free(v);
        }
    }

    // Of 32 elements, from byte `at` of each row on.
    void emit_codes(const std::vector<Vec>& v, int at) {
        for (int four = 0; four < kFours; ++four) {
            const Vec &a = v[size_t(four * step())], &b = v[size_t(four * step() + 1)];
            const auto row_at = [&](int key) { return rows_.in_turn(4 * four + key, row_) + at; };
            of_nibbles() ? load_upper_nibbles_of_four(a, b, row_at)
                         : load_bytes_of_four(a, b, row_at, in_order());
        }
    }

    // Of two rows, from row `row` of the pass on: what their products have to wait for differs.
    template <typename Ask>
    void emit_rows(const Vec* acc, const std::vector<Vec>& v, const Pass& pass, int row, int vec,
                   const Ask& ask) {
        const int rows = std::min(kTogether, pass.rows - row);
        const std::vector<Vec> sums = vecs("sums", rows * step());
        for (const Vec& sum : sums) zero(sum);
        for (int four = 0; four < kFours; ++four) {
            if (four % 2 == 0) ask();
            for (int r = 0; r < rows; ++r) {
                Temp weight(*this, "weight");
                const int at = form_.weights_at(set_of(vec), pass.row + row + r) + in_set(vec);
                broadcast(weight, ptr[weights_ + at + four * ValueRuns::kSet * 4]);
                for (int i = 0; i < step(); ++i)
                    dot_bytes(sums[size_t(r * step() + i)], *weight, v[size_t(four * step() + i)]);
            }
        }
        for (int r = 0; r < rows; ++r) {
            Temp factor(*this, "factor");
            broadcast(factor,
                      ptr[weights_ + form_.factors_at(set_of(vec), pass.row + row + r) + in_set(vec)]);
            for (int i = 0; i < step(); ++i) {
                const Vec& sum = sums[size_t(r * step() + i)];
                vcvtdq2ps(sum, sum);
                vfmadd231ps(acc[r * pass.width + i], sum, factor);
            }
        }
        free(sums);
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        drop_held();
        stage("end of the pass");
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; w += step())
                emit_output(&acc[size_t(r * pass.width + w)], pass.row + r, pass.vec + w);
    }

    void emit_output(const Vec* sums, int row, int vec) {
        if (!in_order()) put_in_order(sums[0], sums[1]);
        Temp rescale(*this, "rescale");
        broadcast(rescale, ptr[rescale_ + row * 4]);
        for (int i = 0; i < step(); ++i) {
            vfmadd231ps(sums[i], rescale, ptr[output_at(row, vec + i)]);
            vmovups(ptr[output_at(row, vec + i)], sums[i]);
        }
    }

    const ValueRuns form_;
};

}  // namespace

Status generate_pv_runs(const RowKey& key, std::vector<uint8_t>* code) { return PvRuns(key).finish(code); }

}  // namespace quire::jit
