#include "jit/token_pv_runs.h"

#include <algorithm>
#include <cstddef>

#include "jit/token_pv_passes.h"
#include "jit/weights_runs.h"

namespace quire::jit {
namespace {

// acc[r][w] = output[r][w] * rescale[r]                                                  emit_begin
// for each block: for each vector of elements: v[four] = its codes, four tokens a lane   emit_tokens
//                 for r: acc[r][w] += dot products of weights and v[four] * the run's factor
// output[r][w] = acc[r][w]                                                               emit_end
//
// live: acc[R * W] + v[2 * 4] + the sums of a row, of two vectors + a weight or factor
class TokenPvRuns : public TokenPvPasses {
public:
    explicit TokenPvRuns(const RowKey& key) : TokenPvPasses(key), form_(key) { generate(); }

private:
    static constexpr int kAccumulators = 16, kFours = kBlockTokens / 4, kTogether = 2;  // vectors

    int most_rows() const override { return kAccumulators / kTogether; }
    int widest(int rows) const override { return kAccumulators / rows / kTogether * kTogether; }
    int fours() const { return codes_.of_dword() / 4; }
    int dwords_a_turn() const override { return kBlockTokens / codes_.of_dword(); }
    int weights_step() const override { return ValueRuns::kBytes; }
    bool asks_within() const override { return true; }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int r = 0; r < pass.rows; ++r) {
            Temp rescale(*this, "rescale");
            broadcast(rescale, ptr[rescale_ + (pass.row + r) * 4]);
            for (int w = 0; w < pass.width; ++w)
                vmulps(acc[size_t(r * pass.width + w)], rescale, ptr[output_at(pass.row + r, pass.vec + w)]);
        }
    }

    void emit_tokens(const std::vector<Vec>& acc, const Pass& pass) override {
        const int parts = (pass.width + kTogether - 1) / kTogether * pass.rows;
        int part = 0;
        for (int w = 0; w < pass.width; w += kTogether) {
            const int count = std::min(kTogether, pass.width - w);
            const std::vector<Vec> v = vecs("codes", count * kFours);
            for (int i = 0; i < count; ++i) emit_codes(&v[size_t(i * kFours)], pass.vec + w + i);
            for (int r = 0; r < pass.rows; ++r) {
                emit_asks(pass, part++, parts);
                emit_row(&acc[size_t(r * pass.width + w)], v, pass.row + r, pass.vec + w);
            }
            free(v);
        }
    }

    // Of all tokens, in fours; of four bits as the upper ones of bytes.
    void emit_codes(const Vec* v, int vec) {
        for (int four = 0; four < kFours; four += fours()) {
            const Vec &low = v[four], &high = v[four + fours() - 1];
            vmovups(high, ptr[block_ + four / fours() * key_.dim * 4 + vec * lanes() * 4]);
            if (fours() == 1) continue;
            vpsllw(low, high, 4);
            for (const Vec* half : {&low, &high}) vpandd(*half, *half, splat_bits(0xf0f0f0f0));
        }
    }

    // acc[i] of so many vectors.
    void emit_row(const Vec* acc, const std::vector<Vec>& v, int row, int vec) {
        const int count = int(v.size()) / kFours;
        const std::vector<Vec> sums = vecs("sums", count);
        for (const Vec& sum : sums) zero(sum);
        for (int four = 0; four < kFours; ++four) {
            Temp weight(*this, "weight");
            for (int i = 0; i < count; ++i) {
                load_of_groups(weight, vec, i, [&](int group) {
                    return weights_ + form_.weights_at(group / ValueRuns::kSet, row) +
                           (four * ValueRuns::kSet + group % ValueRuns::kSet) * 4;
                });
                dot_bytes(sums[size_t(i)], *weight, v[size_t(i * kFours + four)]);
            }
        }
        Temp factor(*this, "factor");
        for (int i = 0; i < count; ++i) {
            load_of_groups(factor, vec, i, [&](int group) {
                return weights_ + form_.factors_at(group / ValueRuns::kSet, row) +
                       group % ValueRuns::kSet * 4;
            });
            vcvtdq2ps(sums[size_t(i)], sums[size_t(i)]);
            vfmadd231ps(acc[i], sums[size_t(i)], factor);
        }
        free(sums);
    }
    // What the groups of vector `vec` + i have, unless those of the one before are the same.
    template <typename At>
    void load_of_groups(const Vec& v, int vec, int i, const At& at) {
        const int low = group_of(vec + i, 0), high = group_of(vec + i, 1);
        if (!same_groups(vec, i)) broadcast_halves(v, at(low), at(high), low == high);
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w)
                vmovups(ptr[output_at(pass.row + r, pass.vec + w)], acc[size_t(r * pass.width + w)]);
    }

    const ValueRuns form_;
};

}  // namespace

Status generate_token_pv_runs(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenPvRuns(key).finish(code);
}

}  // namespace quire::jit
