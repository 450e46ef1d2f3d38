#include "jit/pv.h"

#include <algorithm>
#include <optional>
#include <set>

#include "jit/pv_amx.h"
#include "jit/pv_bytes.h"
#include "jit/pv_fours.h"
#include "jit/pv_passes.h"
#include "jit/pv_runs.h"
#include "jit/pv_shifts.h"
#include "jit/row_loader.h"
#include "jit/scaled_amx.h"
#include "jit/token_codes.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_runs.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

// Pairs of vectors that are whole, and of one group each.
bool takes_pairs(const RowKey& key) {
    const int pair = 2 * key.target->lanes();
    if (key.target->vector_bits != 256) return false;
    if (key.format.type == QUIRE_Q4_0) return true;
    return key.format.type == QUIRE_INT4 && key.dim % pair == 0 && key.format.quant_group % pair == 0;
}

// A turn: for each key: v[w] = dequantised lanes of its row                (row loader)
//                       for r: p = probabilities[r][key]; acc[r][w] += p * v[w]
//         where weights hold the scales: v[w] = codes, p = weights[r][key][group of w]
//
// Codes of four bits may come in pairs of vectors, one of the lower nibbles of eight bytes and one of the
// upper ones: a load and an extension for both. Their order is put right in the end, and their size: they are
// 2^28 and 2^4 times as large where no scale makes that too much.
//
// live: acc[R' * W] + v[W] + one that is p or the loader's; tops: + what cuts them out
class Pv : public PvPasses {
public:
    explicit Pv(const RowKey& key) : PvPasses(key), loader_(RowLoader::make(*this, key.format, key.dim)) {
        generate();
    }

private:
    int widest(int rows) const override {
        return std::min(most_width(), (num_vecs() - 1) / (rows + 1)) / step() * step();
    }
    int step() const override { return pairs_ ? 2 : 1; }
    int key_bytes() const { return 4 * (folds_ ? key_.scales_stride() : 1); }
    int turn_bytes() const override { return kUnroll * key_bytes(); }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        if (pairs_) {
            for (const Vec& v : acc) zero(v);
            if (!tops_) return;
            const Vec& upper = upper_.emplace(*this, "upper");
            vpcmpeqd(upper, upper, upper);
            vpslld(upper, upper, 4);
            return;
        }
        loader_->hold(pass.width + kMostTemps);
        for (int r = 0; r < pass.rows; ++r) {
            Temp rescale(*this, "rescale");
            broadcast(rescale, ptr[rescale_ + (pass.row + r) * 4]);
            for (int w = 0; w < pass.width; ++w)
                vmulps(acc[size_t(r * pass.width + w)], *rescale, ptr[output_at(pass.row + r, pass.vec + w)]);
        }
    }

    // Where a turn has more than eight lines: twelve and more at once are dropped, or waited for.
    bool asks_within() const override { return key_.row_bytes() * kUnroll > 8 * int(kLineBytes); }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int key = 0; key < kUnroll; ++key) emit_key(acc, pass, key);
        if (!folds_) add(scales_, key_.scales_stride() * 4 * kUnroll);
    }

    void emit_key(const std::vector<Vec>& acc, const Pass& pass, int key) {
        stage("key " + std::to_string(key));
        const std::vector<Vec> v = vecs("v", pass.width);
        emit_values(v, key, pass, [&] {
            const RegExp row = rows_.in_turn(key, row_);
            for (int w = 0; w < pass.width; w += step()) emit_load(&v[size_t(w)], pass.vec + w, row, key);
        });
        for (int r = 0; r < pass.rows; ++r) {
            const RegExp weights =
                weights_ + (pass.row + r) * weight_row_bytes(key_bytes(), folds_) + key * key_bytes();
            if (asks_within()) emit_asks(pass, key * pass.rows + r, kUnroll * pass.rows);
            Temp p(*this, "p");
            for (int w = 0; w < pass.width; ++w) {
                if (w == 0 || group_of(pass.vec + w) != group_of(pass.vec + w - 1))
                    broadcast(p, ptr[weights + group_of(pass.vec + w) * 4]);
                vfmadd231ps(acc[size_t(r * pass.width + w)], p, v[size_t(w)]);
            }
        }
        free(v);
    }

    void emit_load(const Vec* v, int vec, const RegExp& row, int key) {
        const RegExp scales = scales_ + key * key_.scales_stride() * 4;
        if (pairs_) return emit_pair(v, vec, row, scales);
        folds_ ? loader_->load_codes(*v, vec, row) : loader_->load(*v, vec, row, scales);
    }
    void emit_pair(const Vec* v, int vec, const RegExp& row, const RegExp& scales) {
        const RegExp at = row + bytes_of_pair(vec);
        tops_ ? load_nibble_tops(v[0], v[1], at, *upper_, block() ? block()->zero : 0)
              : load_signed_nibbles(v[0], v[1], at);
        if (folds_) return;
        Temp scale(*this, "scale");
        broadcast(scale, ptr[scales + vec * lanes() / scale_group(key_.format) * 4]);
        for (int i = 0; i < 2; ++i) vmulps(v[i], v[i], scale);
    }

    int group_of(int vec) const { return folds_ ? vec * lanes() / scale_group(key_.format) : 0; }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        drop_held();
        upper_.reset();
        if (pairs_) emit_order(acc, pass);
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w)
                vmovups(ptr[output_at(pass.row + r, element_vec(pass.vec + w))],
                        acc[size_t(r * pass.width + w)]);
    }
    int element_vec(int vec) const { return pairs_ ? vec_of_pair(vec) : vec; }

    // output * rescale + acc, in the order of the row.
    void emit_order(const std::vector<Vec>& acc, const Pass& pass) {
        for (int r = 0; r < pass.rows; ++r) {
            const Vec* const of_row = &acc[size_t(r * pass.width)];
            for (int w = 0; w < pass.width; w += 2) {
                if (tops_) vmulps(of_row[w], of_row[w], splat(1.f / float(1 << 28)));
                if (tops_) vmulps(of_row[w + 1], of_row[w + 1], splat(1.f / float(1 << 4)));
                if (!block()) interleave(of_row[w], of_row[w + 1]);
            }
            Temp rescale(*this, "rescale");
            broadcast(rescale, ptr[rescale_ + (pass.row + r) * 4]);
            for (int w = 0; w < pass.width; ++w)
                vfmadd231ps(of_row[w], rescale, ptr[output_at(pass.row + r, element_vec(pass.vec + w))]);
        }
    }

    const bool folds_ = folds_scales(key_), pairs_ = takes_pairs(key_);
    const bool tops_ = pairs_ && allows_tops(key_.format);
    std::optional<Temp> upper_;
    const std::unique_ptr<RowLoader> loader_;
};

// A turn: for each pair of keys: v[w] = words of both rows                 (word loader)
//                                scaled: * scales of the pair
//                                for r: p = weights of the pair; acc[r][w] += p.low * v.low + p.high * v.high
// then    output[r][w] = output[r][w] * rescale[r] + float(acc[r][w]) * factors[r] of the lanes' groups
//
// |weight| < 2^15, |code| <= 2^7, kBlock keys: 2^22 * 128 < 2^31; scaled: |p| < 2^12, |v| < 2^12.
//
// live: acc[R' * W] + v[W] + p, the products' or a scale
class PvWords : public PvPasses {
public:
    explicit PvWords(const RowKey& key)
        : PvPasses(key), scaled_(key), loader_(WordLoader::make(*this, key.format, key.dim)) {
        generate();
    }

private:
    int widest(int rows) const override {
        int most = std::min(most_width(), (num_vecs() - 2) / (rows + 1)) / step() * step();
        while (most > step() && !holds(rows, most)) most -= step();
        return most;
    }
    // Whether registers are left for the orders of weights: each loaded anew, they cost more than a pass.
    bool holds(int rows, int width) const {
        std::set<std::vector<int>> orders;
        for (int w = 0; w < width; ++w) {
            std::vector<int> groups = loader_->value_groups(w);
            if (!permutes(groups)) continue;
            for (int& group : groups) group -= loader_->value_groups(w).front();
            orders.insert(groups);
        }
        return orders.empty() || (rows + 1) * width + kMostTemps + int(orders.size()) <= num_vecs();
    }
    int step() const override { return 2; }
    int pair_bytes() const { return key_.weight_stride() * 4; }
    int turn_bytes() const override { return kUnroll / 2 * pair_bytes(); }

    void emit_start() override {
        for (int vec = 0; vec < key_.vecs(); ++vec)
            if (is_halves(loader_->value_groups(vec))) return hold_upper_half();
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        for (const Vec& v : acc) zero(v);
        for (int w = 0; w < pass.width; ++w)
            hold_lanes(loader_->value_groups(pass.vec + w), pass.width + kMostTemps);
        if (key_.scales_words()) mov(probabilities_, ptr[args() + offsetof(PvArgs, probabilities)]);
    }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int pair = 0; pair < kUnroll / 2; ++pair) emit_pair(acc, pass, pair);
        if (key_.scales_words()) add(probabilities_, 2 * kUnroll);
    }

    void emit_pair(const std::vector<Vec>& acc, const Pass& pass, int pair) {
        stage("pair " + std::to_string(pair));
        const std::vector<Vec> v = vecs("v", pass.width);
        emit_values(v, pair, pass, [&] {
            const RegExp first = rows_.in_turn(2 * pair, row_), second = rows_.in_turn(2 * pair + 1, second_);
            for (int w = 0; w < pass.width; w += step())
                key_.scales_words() ? loader_->load_value_tops(&v[size_t(w)], pass.vec + w, first, second)
                                    : loader_->load_values(&v[size_t(w)], pass.vec + w, first, second);
            if (key_.scales_words())
                emit_scaled(v, pass.vec, weights_ + scaled_.scales_at() + pair * pair_bytes());
        });
        for (int r = 0; r < pass.rows; ++r) {
            const Vec* const of_row = &acc[size_t(r * pass.width)];
            const int row = pass.row + r;
            key_.scales_words()
                ? emit_row(of_row, v, probabilities_ + row * ScaledWords::kRowBytes + pair * 4)
                : emit_row(of_row, v, pass,
                           weights_ + row * weight_row_bytes(pair_bytes() / 2) + pair * pair_bytes());
        }
        free(v);
    }

    void emit_scaled(const std::vector<Vec>& v, int vec, const RegExp& scales) {
        Temp scale(*this, "scale");
        std::vector<int> loaded;
        for (int w = 0; w < int(v.size()); ++w) {
            const std::vector<int> groups = loader_->value_groups(vec + w);
            if (groups != loaded) load_lanes(scale, scales, groups);
            loaded = groups;
            vpmulhrsw(v[size_t(w)], v[size_t(w)], scale);
        }
    }

    // Of scaled ones.
    void emit_row(const Vec* acc, const std::vector<Vec>& v, const RegExp& probabilities) {
        Temp p(*this, "p");
        broadcast(p, ptr[probabilities]);
        for (size_t w = 0; w < v.size(); ++w) dot_words(acc[w], v[w], p);
    }
    void emit_row(const Vec* acc, const std::vector<Vec>& v, const Pass& pass, const RegExp& weights) {
        Temp p(*this, "p");
        std::vector<int> loaded;
        for (int w = 0; w < pass.width; ++w) {
            const std::vector<int> groups = loader_->value_groups(pass.vec + w);
            if (groups != loaded) load_lanes(p, weights, groups);
            loaded = groups;
            dot_words(acc[w], v[size_t(w)], p);
        }
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        drop_held();
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; w += step()) {
                const Vec* sums = &acc[size_t(r * pass.width + w)];
                emit_sums(sums, pass.row + r, pass.vec + w);
                loader_->restore_order(sums);
                emit_output(sums, pass.row + r, pass.vec + w);
            }
    }

    void emit_sums(const Vec* sums, int row, int vec) {
        for (int i = 0; i < step(); ++i) {
            Temp factor(*this, "factor");
            load_lanes(factor, scales_ + row * key_.weight_stride() * 4, loader_->value_groups(vec + i));
            vcvtdq2ps(sums[i], sums[i]);
            vmulps(sums[i], sums[i], factor);
        }
    }

    void emit_output(const Vec* sums, int row, int vec) {
        Temp rescale(*this, "rescale");
        broadcast(rescale, ptr[rescale_ + row * 4]);
        for (int i = 0; i < step(); ++i) {
            const int to = loader_->value_vec(vec + i);
            if (to >= key_.vecs()) continue;
            vfmadd231ps(sums[i], rescale, ptr[output_at(row, to)]);
            vmovups(ptr[output_at(row, to)], sums[i]);
        }
    }

    const ScaledWords scaled_;
    const std::unique_ptr<WordLoader> loader_;
    const Gpr second_ = gpr("second row"), probabilities_ = gpr("probabilities");
};

}  // namespace

Status generate_pv(const RowKey& key, std::vector<uint8_t>* code) {
    if (key.scales_tiles()) return generate_pv_scaled_amx(key, code);
    if (takes_value_amx(key)) return generate_pv_amx(key, code);
    if (key.products == Products::three_bytes) return generate_pv_fours(key, code);
    if (key.bytes()) return has_value_runs(key) ? generate_pv_runs(key, code) : generate_pv_bytes(key, code);
    if (takes_shifts(key) && !key.scales_words()) return generate_pv_shifts(key, code);
    return key.words() ? PvWords(key).finish(code) : Pv(key).finish(code);
}

}  // namespace quire::jit
