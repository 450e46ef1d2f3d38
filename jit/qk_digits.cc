#include "jit/qk_digits.h"

#include <algorithm>

#include "jit/qk_fours_emitter.h"

namespace quire::jit {
namespace {

// k[f][j] = dword j of the first turn's codes                                         emit_begin
// for each turn of F fours of keys:                                                   emit_turn
//   code[f][j][part] = bytes of k[f][j]
//   for each pass over R' of the query rows, for part:                                emit_products
//     prefetch a share of the next block's rows, and of this one's
//     for j, for r, for digit:                                                        emit_digits
//       sum[r][digit][f] += dot product of query[r][j][part][digit] and code[f][j][part], in int32
//     (in the last pass, when the first part has been: k = those of the next turn)
//     for r: scores[r] = sums of the lanes of a key, of all digits * scale[f] * factors[r]
//
// Behind products 64 other operations find room beside them, and no more (Zen 5): so of two parts keys are
// loaded between the products of the first and those of the second. Chains of one row would wait for
// themselves: there are digits * F * R' of them.
//
// 256 * that of the high digits + that of the middle ones: 2^15 * 2^8 * 32 elements < 2^31. Of nibbles that
// times 256 and that of the low ones fit, too: 32 * 8 * kLargestOfThree < 2^31, and what is above wraps
// around.
//
// live: code[F][4 * parts] + scale[F] + sums[R' * digits * F] + q or two of a transposition
class QkDigits : public FoursEmitter {
public:
    explicit QkDigits(const RowKey& key) : FoursEmitter(key) { generate(); }

private:
    using Sums = std::vector<Fours>;  // [R'][digit][F]
    static constexpr int kBesides = 2;

    int rows_a_pass() const {
        const int free = num_vecs() - sets(0) * (4 * form_.parts + 1) - kBesides;
        const int most = free / (form_.digits * sets(0)), passes = (key_.rows + most - 1) / most;
        return (key_.rows + passes - 1) / passes;
    }
    bool is_first_part(size_t i) const { return i % size_t(form_.parts) == 0; }

    void emit_begin() override {
        for (int f = 0; f < sets(0); ++f) codes_.push_back(vecs("code", 4 * form_.parts));
        ahead_.follow(rows_);
        load_keys();
    }

    // Of each dword the first part is as it lies in the row.
    void load_keys() {
        stage("keys");
        ahead_.turn(row_);
        for (int f = 0; f < sets(0); ++f) {
            std::vector<Vec> k;
            for (size_t i = 0; i < codes_[size_t(f)].size(); ++i)
                if (is_first_part(i)) k.push_back(codes_[size_t(f)][i]);
            for (int t = 0; t < 4; ++t) loader_->load_packed(k[size_t(t)], 0, ahead_.in_turn(4 * f + t, row_));
            transpose_dwords(k);
        }
    }

    void emit_turn() override {
        if (!paces()) emit_prefetches(0, 1);
        if (turns_scales()) emit_scales();
        const std::vector<Vec> scales = vecs("scale", sets(0));
        for (int f = 0; f < sets(0); ++f) {
            load_scales(scales[size_t(f)], f, {0, 0});
            for (int j = 0; j < 4; ++j) loader_->unpack(&codes_[size_t(f)][size_t(j * form_.parts)]);
        }
        for (int row = 0; row < key_.rows; row += rows_a_pass()) {
            const int rows = std::min(rows_a_pass(), key_.rows - row);
            const Sums sums = emit_products(row, rows);
            for (int r = 0; r < rows; ++r) emit_scores(sums[size_t(r)], scales, row + r);
        }
        free(scales);
    }

    int passes() const { return (key_.rows + rows_a_pass() - 1) / rows_a_pass(); }

    Sums emit_products(int row, int rows) {
        stage("rows from " + std::to_string(row));
        Sums sums;
        for (int r = 0; r < rows; ++r) sums.push_back(begin_sums(row + r));
        const int pass = row / rows_a_pass();
        const bool last = pass + 1 == passes();
        for (int part = 0; part < form_.parts; ++part) {
            if (last && part == 1) load_keys_ahead();
            if (paces()) emit_prefetches(pass * form_.parts + part, passes() * form_.parts);
            for (int i = part; i < 4 * form_.parts; i += form_.parts)
                for (int r = 0; r < rows; ++r) emit_digits(sums[size_t(r)], i, row + r);
        }
        if (last && form_.parts == 1) load_keys_ahead();
        return sums;
    }

    void emit_digits(const Fours& sums, int i, int row) {
        for (int digit = 0; digit < form_.digits; ++digit)
            emit_dots(sums[size_t(digit)], codes_, i, vector_of({0, 0}, row), digit);
    }

    void load_keys_ahead() {
        ahead_.follow(rows_, keys_, count_);
        load_keys();
    }

    Fours begin_sums(int row) {
        const int first = sum_of({0, 0}, row) * form_.chains();
        Fours sums;
        for (int digit = 0; digit < form_.digits; ++digit) {
            sums.push_back(vecs("sum", sets(0)));
            const int of_low = digit + 1 == form_.digits ? form_.chains() - 1 : -1;
            const int start = form_.digits == 3 && digit == 0 ? 0 : of_low;
            if (start >= 0)
                load_starts(sums.back(), first + start);
            else
                for (const Vec& v : sums.back()) zero(v);
        }
        return sums;
    }

    void emit_scores(const Fours& sums, const std::vector<Vec>& scales, int row) {
        const std::vector<Vec>& total = sums[0];
        for (size_t f = 0; f < total.size(); ++f) {
            emit_total(sums, f);
            vmulps(total[f], total[f], scales[f]);
        }
        for (size_t digit = 1; digit < sums.size(); ++digit) free(sums[digit]);
        add_quarters(total);
        multiply_by_scalar(total[0], factors_ + row * 4);
        fours_ == 1 ? store_quarter(scores_at(row), total[0]) : store_half(scores_at(row), total[0], 0);
        free(total);
    }

    // What the digits of four keys are together, as a number, in that of the first.
    void emit_total(const Fours& sums, size_t f) {
        const Vec &total = sums[0][f], &low = sums.back()[f];
        const bool apart = form_.digits == 3 && form_.parts == 1;
        for (size_t digit = 1; digit + apart < sums.size(); ++digit) {
            vpslld(total, total, 8);
            vpaddd(total, total, sums[digit][f]);
        }
        vcvtdq2ps(total, total);
        if (!apart) return;
        vcvtdq2ps(low, low);
        vfmadd132ps(total, low, splat(256));
    }

    Fours codes_;  // [F][j, part]
    RowList ahead_{*this, key_, key_.row_bytes(), "rows ahead"};
};

}  // namespace

bool has_whole_rows(const FoursForm& form) { return form.digits > 1 && form.chunks == 1 && form.run == 4; }

Status generate_qk_digits(const RowKey& key, std::vector<uint8_t>* code) {
    return QkDigits(key).finish(code);
}

}  // namespace quire::jit
