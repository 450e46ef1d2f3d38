#include "jit/tile_value_bytes.h"

#include <algorithm>
#include <cstddef>

#include "jit/byte_loader.h"
#include "jit/tile_product.h"
#include "jit/tile_words.h"

namespace quire::jit {
namespace {

constexpr int kKeys = 4;  // of a lane

int panels_of_group(const RowKey& key) { return (key.dim / key.groups() + kFourPanel - 1) / kFourPanel; }

// for each group g, for each of its panels (of as many as there are), for d of kFourPanel step n:
//   sum[n][w] = output[d + n][w] * rescale[w]
//   for each run of keys:
//     acc[n][w] = sum over its fours of keys of values[d + n] . weights[g][four][w]
//     sum[n][w] += acc[n][w] * factors[g][run][w]
//   output[d + n][w] = sum[n][w]
class TilePvBytes : public TileProduct {
public:
    explicit TilePvBytes(const RowKey& key)
        : TileProduct(*key.target, key.rows, 0, 2), key_(key), sums_(vecs("sum", n_ * vecs_)) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        mov(left_, ptr[args() + offsetof(TilePvArgs, panels)]);
        add(left_, 1);
        shr(left_, 1);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_group, each_panel, each_dims, done;
        L(each_group);
        mov(panels_, panels_of_group(key_));
        L(each_panel);
        mov(dims_, kFourPanel / n_);
        L(each_dims);
        emit_dims();
        add(output_, n_ * panel_bytes());
        add(panel_, n_ * 4);
        dec(dims_);
        jnz(each_dims, T_NEAR);
        add(panel_, (kFourPanelStride - kFourPanel) * 4);
        dec(left_);
        jz(done, T_NEAR);
        dec(panels_);
        jnz(each_panel, T_NEAR);
        add(group_, tile_byte_weight_stride(vecs_ * lanes()) * 4);
        add(factors_, kWeightRuns * panel_bytes());
        jmp(each_group, T_NEAR);
        L(done);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    const Vec& sum(int n, int w) const { return sums_[size_t(n * vecs_ + w)]; }
    RegExp output_at(int n, int w) const { return output_ + n * panel_bytes() + w * vec_bytes(); }

    void emit_dims() {
        stage("dims");
        begin_sums(sums_, rescale_, [&](int n, int w) { return output_at(n, w); });
        mov(weights_, group_);
        mov(factor_, factors_);
        mov(value_, panel_);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each_run;
        begin_loop(each_run);
        emit_run();
        sub(count_, kWeightRun);
        jnz(each_run, T_NEAR);
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[output_at(n, w)], sum(n, w));
    }

    static constexpr int kFours = kWeightRun / kKeys;

    void emit_run() {
        key_.target->vnni ? emit_dots() : emit_words();
        ask_ahead(kFours);
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, ptr[factor_ + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) {
                if (!key_.target->vnni) vpmaddwd(acc(n, w), acc(n, w), splat_bits(0x00010001));
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd231ps(sum(n, w), acc(n, w), factor);
            }
        }
        add(weights_, kFours * panel_bytes());
        add(value_, kFours * kFourPanel * 4);
        add(factor_, panel_bytes());
    }

    RegExp code_at(int four, int n) const { return value_ + (four * kFourPanel + n) * 4; }

    void emit_dots() {
        for (const Vec& v : acc_) zero(v);
        for (int i = 0; i < kFours; ++i)
            emit_step(
                weights_ + i * panel_bytes(), [&](int n) { return code_at(i, n); },
                [&](const Vec& acc, const Vec& codes, const Xbyak::Operand& weights) {
                    dot_bytes(acc, static_cast<const Vec&>(weights), codes);
                });
    }

    // Sums of a run of codes of 4 bits are words: 16 * 255 * 8 < 2^15.
    void emit_words() {
        const Vec& weights = rows_[0];
        std::vector<Vec> codes(rows_.begin() + 1, rows_.end());
        const std::vector<Vec> more = vecs("codes", std::max(0, n_ - int(codes.size())));
        codes.insert(codes.end(), more.begin(), more.end());
        for (int i = 0; i < kFours; ++i) {
            for (int n = 0; n < n_; ++n) broadcast(codes[size_t(n)], ptr[code_at(i, n)]);
            for (int w = 0; w < vecs_; ++w) {
                vmovups(weights, ptr[weights_ + i * panel_bytes() + w * vec_bytes()]);
                for (int n = 0; n < n_; ++n) {
                    if (i == 0) {
                        vpmaddubsw(acc(n, w), weights, codes[size_t(n)]);
                        continue;
                    }
                    Temp products(*this, "products");
                    vpmaddubsw(products, weights, codes[size_t(n)]);
                    vpaddw(acc(n, w), acc(n, w), products);
                }
            }
        }
        free(more);
    }

    const RowKey key_;
    const std::vector<Vec> sums_;
    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), panels_ = gpr("panels"), group_ = gpr("group"),
              left_ = gpr("panels left"), dims_ = gpr("dims"), factors_ = gpr("factors"),
              weights_ = gpr("weights"), value_ = gpr("value"), count_ = gpr("count"),
              factor_ = gpr("factor");
    const Gpr& rescale_ = count_;  // before it
};

// The lanes are elements. for each group g, for each kVecs (or one) panels of it, for each pass over R' rows:
//   sum[r][v] = output[r][panels][v] * rescale[r]
//   for each run of keys:                                                              emit_run
//     acc[r][v] = sum over its fours of keys of values[panels][four][v] . weights[g][four][r]
//     sum[r][v] += acc[r][v] * factors[g][run][r]
//   output[r][panels][v] = sum[r][v]
class TilePvByteRows : public Emitter {
public:
    explicit TilePvByteRows(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          vecs_(panels_of_group(key) % kVecs == 0 ? kVecs : 1),
          values_(vecs("value", vecs_)),
          ahead_(*this, *key.target) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(group_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        mov(factors_, ptr[args() + offsetof(TilePvArgs, factors)]);
        mov(left_, key_.groups());
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_group, each_step;
        L(each_group);
        mov(steps_, panels_of_group(key_) / vecs_);
        L(each_step);
        emit_passes();
        add(output_, vecs_ * vec_bytes());
        add(panel_, vecs_ * kFourPanelStride * 4);
        dec(steps_);
        jnz(each_step, T_NEAR);
        add(group_, tile_byte_weight_stride(lanes()) * 4);
        add(factors_, kWeightRuns * vec_bytes());
        dec(left_);
        jnz(each_group, T_NEAR);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    static constexpr int kVecs = 2;

    // Two registers an accumulator, beside the values and a weight.
    void emit_passes() {
        const int most = (num_vecs() - vecs_ - 1) / 2 / vecs_, passes = (key_.rows + most - 1) / most;
        for (int i = 0, row = 0; i < passes; ++i) {
            const int rows = (key_.rows - row + passes - i - 1) / (passes - i);
            emit_pass(row, rows);
            row += rows;
        }
    }

    void emit_pass(int row, int rows) {
        stage("pass from row " + std::to_string(row));
        const std::vector<Vec> sums = vecs("sum", vecs_ * rows), acc = vecs("acc", vecs_ * rows);
        const auto output_at = [&](int r, int v) {
            return ptr[output_ + (row + r) * key_.padded() * 4 + v * vec_bytes()];
        };
        const auto rescaled = [&] {
            const Vec& rescale = values_[0];
            for (int r = 0; r < rows; ++r) {
                broadcast(rescale, ptr[rescale_ + (row + r) * 4]);
                for (int v = 0; v < vecs_; ++v) vmulps(sums[size_t(r * vecs_ + v)], rescale, output_at(r, v));
            }
        };
        with_rescale(*this, rescale_, rescaled, [&] {
            for (const Vec& v : sums) zero(v);
        });
        lea(weights_, ptr[group_ + row * 4]);
        lea(factor_, ptr[factors_ + row * 4]);
        mov(value_, panel_);
        mov(count_, ptr[args() + offsetof(TilePvArgs, count)]);
        Label each_run;
        L(each_run);
        emit_run(sums, acc);
        sub(count_, kWeightRun);
        jnz(each_run, T_NEAR);
        for (int r = 0; r < rows; ++r)
            for (int v = 0; v < vecs_; ++v) vmovups(output_at(r, v), sums[size_t(r * vecs_ + v)]);
        free(sums);
        free(acc);
    }

    void emit_run(const std::vector<Vec>& sums, const std::vector<Vec>& acc) {
        constexpr int kFours = kWeightRun / kKeys;
        for (const Vec& v : acc) zero(v);
        for (int i = 0; i < kFours; ++i) {
            for (int v = 0; v < vecs_; ++v)
                vmovups(values_[size_t(v)], ptr[value_ + (v * kFourPanelStride + i * kFourPanel) * 4]);
            for (size_t r = 0; r < acc.size() / size_t(vecs_); ++r) {
                Temp weights(*this, "weights");
                vpbroadcastd(weights, ptr[weights_ + i * vec_bytes() + int(r) * 4]);
                for (size_t v = 0; v < size_t(vecs_); ++v)
                    dot_bytes(acc[r * size_t(vecs_) + v], weights, values_[v]);
            }
            ahead_.some(int(acc.size()));
        }
        for (size_t i = 0; i < acc.size(); ++i) {
            vcvtdq2ps(acc[i], acc[i]);
            vfmadd231ps(sums[i], acc[i], ptr_b[factor_ + int(i) / vecs_ * 4]);
        }
        add(weights_, kFours * vec_bytes());
        add(value_, kFours * kFourPanel * 4);
        add(factor_, vec_bytes());
    }

    const RowKey key_;
    const int vecs_;
    const std::vector<Vec> values_;
    TileAhead ahead_;
    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), group_ = gpr("group"),
              left_ = gpr("groups left"), steps_ = gpr("steps left"), factors_ = gpr("factors"),
              weights_ = gpr("weights"), value_ = gpr("value"), count_ = gpr("count"),
              factor_ = gpr("factor");
    const Gpr& rescale_ = count_;  // before it
};

}  // namespace

bool has_tile_value_bytes(const RowKey& key) {
    constexpr int kLeast = 32;  // of AVX2, which reads 16 bytes of a row
    const bool of_words = key.target->vector_bits == 256 && !key.target->vnni &&
                          key.format.type == QUIRE_INT4 && key.dim % kFourPanel == 0 && key.dim >= kLeast;
    const bool of_dots = key.target->vector_bits == 512 && key.target->vnni;
    return (of_dots || of_words) && has_bytes(key.format) && has_tile_value_words(key) &&
           key.dim % kValuePanel == 0 && (key.groups() == 1 || scale_group(key.format) % kFourPanel == 0);
}

Status generate_tile_pv_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvBytes(key).finish(code);
}
Status generate_tile_pv_byte_rows(const RowKey& key, std::vector<uint8_t>* code) {
    return TilePvByteRows(key).finish(code);
}

}  // namespace quire::jit
