#include "jit/pv_shifts.h"

#include <algorithm>

#include "jit/pv_passes.h"
#include "jit/weights.h"

namespace quire::jit {
namespace {

constexpr int kFour = 4;  // vectors

// Vectors come in fours, whose lanes are of a group each: one vector of weights serves all four.
//
// live: acc[R' * W] + v[4], and besides
class PvShifts : public PvPasses {
protected:
    explicit PvShifts(const RowKey& key) : PvPasses(key) {}

    virtual int besides() const = 0;
    int rows_a_pass() const override {
        int rows = key_.rows;
        while (widest(rows) < kFour) rows = (rows + 1) / 2;
        return rows;
    }
    int widest(int rows) const override {
        const int most = std::min(kMostWidth, (num_vecs() - kFour - besides()) / rows);
        return most / kFour * kFour;
    }
    int step() const override { return kFour; }

    int code_bits() const { return key_.format.type == QUIRE_INT4 ? 4 : 8; }

    virtual int element(int vec, int lane) const = 0;  // of the row
    std::vector<int> groups_of(int vec) const {
        std::vector<int> groups;
        for (int lane = 0; lane < lanes(); ++lane)
            groups.push_back(element(vec, lane) / scale_group(key_.format));
        return groups;
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        for (const Vec& v : acc) zero(v);
        for (int w = 0; w < pass.width; w += kFour)
            hold_lanes(groups_of(pass.vec + w), kFour + besides() - 1);
    }

    // acc += p * v in a lane.
    virtual void emit_product(const Vec& acc, const Vec& v, const Vec& p) = 0;
    void emit_products(const std::vector<Vec>& acc, const std::vector<Vec>& v, const Pass& pass, int w,
                       const RegExp& weights, int of_row, bool of_groups) {
        for (int r = 0; r < pass.rows; ++r) {
            const RegExp at = weights + (pass.row + r) * of_row;
            Temp p(*this, "p");
            std::vector<int> loaded;
            for (int j = 0; j < kFour; ++j) {
                const std::vector<int> groups =
                    of_groups ? groups_of(pass.vec + w + j) : std::vector<int>(size_t(lanes()), 0);
                if (groups != loaded) load_lanes(p, at, groups);
                loaded = groups;
                emit_product(acc[size_t(r * pass.width + w + j)], v[size_t(j)], p);
            }
        }
    }

    // The sums as numbers, and 128 bits i of a vector then are elements that follow those of its 128 bits
    // i - 1 in that vector of the row.
    virtual void emit_numbers(const std::vector<Vec>& sums, int row, int vec) = 0;

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; w += kFour) {
                const auto first = acc.begin() + r * pass.width + w;
                const std::vector<Vec> sums(first, first + kFour);
                emit_numbers(sums, pass.row + r, pass.vec + w);
                transpose_quarters(sums);
                emit_output(sums, pass.row + r, pass.vec + w);
            }
        drop_held();
    }

    void emit_output(const std::vector<Vec>& sums, int row, int vec) {
        Temp rescale(*this, "rescale");
        broadcast(rescale, ptr[rescale_ + row * 4]);
        for (int i = 0; i < kFour; ++i) {
            const RegExp to = output_at(row, element(vec, 4 * i) / lanes());
            vfmadd231ps(sums[size_t(i)], rescale, ptr[to]);
            vmovups(ptr[to], sums[size_t(i)]);
        }
    }
};

// Lane i of vector j of a four: element 4 i + j.
//
// A turn: for each key: v[j] = float(code), or float(code) * scale of the lane's group
//                       for r: acc[r][j] += weights[r][key] of the lane's group, or p[r][key], * v[j]
class PvFloatShifts : public PvShifts {
public:
    explicit PvFloatShifts(const RowKey& key) : PvShifts(key) { generate(); }

private:
    int besides() const override { return 4; }  // p, the scales, an order of lanes, one spare
    int key_bytes() const { return 4 * (folds_ ? key_.scales_stride() : 1); }
    int turn_bytes() const override { return kUnroll * key_bytes(); }
    int element(int vec, int lane) const override {
        return vec / kFour * kFour * lanes() + 4 * lane + vec % kFour;
    }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int key = 0; key < kUnroll; ++key) {
            stage("key " + std::to_string(key));
            const RegExp row = rows_.in_turn(key, row_);
            for (int w = 0; w < pass.width; w += kFour) emit_four(acc, pass, key, w, row);
        }
        if (!folds_) add(scales_, key_.scales_stride() * 4 * kUnroll);
    }

    void emit_four(const std::vector<Vec>& acc, const Pass& pass, int key, int w, const RegExp& row) {
        const std::vector<Vec> v = vecs("v", kFour);
        emit_values(v, key, pass, [&] {
            emit_codes(v, row + (pass.vec + w) * lanes() * code_bits() / 8);
            if (folds_) return;
            Temp scale(*this, "scale");
            load_lanes(scale, scales_ + key * key_.scales_stride() * 4, groups_of(pass.vec + w));
            for (const Vec& number : v) vmulps(number, number, scale);
        });
        emit_products(acc, v, pass, w, weights_ + key * key_bytes(), weight_row_bytes(key_bytes(), folds_),
                      folds_);
        free(v);
    }

    // Every lane gets four codes, the last one highest.
    void emit_codes(const std::vector<Vec>& v, const RegExp& at) {
        const int bits = code_bits();
        const Vec& all = v.back();
        bits == 8 ? vmovups(all, ptr[at]) : vpmovsxwd(all, ptr[at]);
        const int by_table = bits == 4 ? kByTable : 0;
        for (int j = 0; j < by_table; ++j) load_nibble(v[size_t(j)], all, j);
        for (int j = by_table; j + 1 < kFour; ++j) {
            vpslld(v[size_t(j)], all, uint8_t(32 - (j + 1) * bits));
            vpsrad(v[size_t(j)], v[size_t(j)], uint8_t(32 - bits));
        }
        vpsrad(all, all, uint8_t(3 * bits));
        for (int j = by_table; j < kFour; ++j) vcvtdq2ps(v[size_t(j)], v[size_t(j)]);
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        PvShifts::emit_begin(acc, pass);
        if (code_bits() == 4) hold_nibble_numbers(kFour + besides() - 2);
    }
    void emit_product(const Vec& sum, const Vec& v, const Vec& p) override { vfmadd231ps(sum, p, v); }
    void emit_numbers(const std::vector<Vec>& sums, int, int) override { transpose_dwords(sums); }

    // Of the numbers of four bits: a permutation takes the place of shifts and conversions, whose pipes would
    // have more to do than those of products and permutations.
    static constexpr int kByTable = 2;
    const bool folds_ = folds_scales(key_);
};

// Words of two rows are unpacked, so that a lane has one of each: in lane i of 128 bits q there are words
// 8 q + i, or 8 q + 4 + i. Codes of eight bits: both make a four, of vectors of elements 16 q + 2 i, + 1, +
// 8,
// + 9. Of four bits: each makes one, of elements 32 q + 4 i + j, or 16 more.
//
// A turn: for each pair of keys: v[j] = words of both rows' codes
//                                for r: p = weights of the pair; acc[r][j] += p.low * v[j].low + p.high *
//                                v[j].high
// then    the sums, as PvWords (jit/pv.cc)
class PvWordShifts : public PvShifts {
public:
    explicit PvWordShifts(const RowKey& key) : PvShifts(key) { generate(); }

private:
    bool keeps_values() const override { return false; }
    int besides() const override { return 3; }  // p or the second row, an order of lanes, one spare
    int pair_bytes() const { return key_.weight_stride() * 4; }
    int turn_bytes() const override { return kUnroll / 2 * pair_bytes(); }
    int codes() const { return 16 / code_bits(); }  // of a word
    int row_vec(int vec) const { return vec / (2 * codes()); }
    bool is_upper(int vec) const { return vec / codes() % 2 == 1; }  // of each 128 bits

    int element(int vec, int lane) const override {
        const int in_row = lane / 4 * 8 + is_upper(vec) * 4 + lane % 4;
        return (row_vec(vec) * 2 * lanes() + in_row) * codes() + vec % codes();
    }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int pair = 0; pair < kUnroll / 2; ++pair) {
            stage("pair " + std::to_string(pair));
            const RegExp first = rows_.in_turn(2 * pair, row_), second = rows_.in_turn(2 * pair + 1, second_);
            for (int w = 0; w < pass.width; w += kFour) {
                const std::vector<Vec> v = vecs("v", kFour);
                const int vec = pass.vec + w, at = row_vec(vec) * vec_bytes();
                emit_words(v, vec, first + at, second + at);
                emit_products(acc, v, pass, w, weights_ + pair * pair_bytes(),
                              weight_row_bytes(pair_bytes() / 2), true);
                free(v);
            }
        }
    }

    void emit_words(const std::vector<Vec>& v, int vec, const RegExp& first, const RegExp& second) {
        Temp other(*this, "second row's");
        vmovups(other, ptr[second]);
        vmovups(v[0], ptr[first]);
        for (int j = kFour - codes(); j >= 0; j -= codes()) {  // the last vector of a word, from the first's
            const Vec& words = v[size_t(j + codes() - 1)];
            is_upper(vec + j) ? vpunpckhwd(words, v[0], other) : vpunpcklwd(words, v[0], other);
        }
        for (int j = 0; j < kFour; ++j) {
            const Vec &code = v[size_t(j)], &words = v[size_t(j / codes() * codes() + codes() - 1)];
            const int above = 16 - (j % codes() + 1) * code_bits();
            if (above > 0) vpsllw(code, words, uint8_t(above));
            vpsraw(code, code, uint8_t(16 - code_bits()));
        }
    }

    void emit_product(const Vec& sum, const Vec& v, const Vec& p) override { dot_words(sum, v, p); }

    void emit_numbers(const std::vector<Vec>& sums, int row, int vec) override {
        Temp factor(*this, "factor");
        std::vector<int> loaded;
        for (int j = 0; j < kFour; ++j) {
            const std::vector<int> groups = groups_of(vec + j);
            if (groups != loaded) load_lanes(factor, scales_ + row * key_.weight_stride() * 4, groups);
            loaded = groups;
            vcvtdq2ps(sums[size_t(j)], sums[size_t(j)]);
            vmulps(sums[size_t(j)], sums[size_t(j)], factor);
        }
        if (codes() == 4) return transpose_dwords(sums);
        for (size_t j = 0; j < kFour; j += 2) {
            vunpckhps(factor, sums[j], sums[j + 1]);
            vunpcklps(sums[j], sums[j], sums[j + 1]);
            vmovaps(sums[j + 1], factor);
        }
    }

    const Gpr second_ = gpr("second row");
};

}  // namespace

bool takes_shifts(const RowKey& values) {
    const bool is_int4 = values.format.type == QUIRE_INT4, is_int8 = values.format.type == QUIRE_INT8;
    // Codes of eight bits as floats take 22 shifts and conversions a key, of one query row 8 products.
    if (is_int8 && !values.words() && values.rows == 1) return false;
    const int fours = is_int4 && values.words() ? 2 : 1;  // of a vector of each row
    return values.target->vector_bits == 512 && (is_int8 || is_int4) && scale_group(values.format) % 4 == 0 &&
           values.dim % (fours * kFour * values.target->lanes()) == 0;
}

Status generate_pv_shifts(const RowKey& key, std::vector<uint8_t>* code) {
    return key.words() ? PvWordShifts(key).finish(code) : PvFloatShifts(key).finish(code);
}

}  // namespace quire::jit
