#include "jit/qk_digits.h"

#include <algorithm>

#include "jit/qk_fours_emitter.h"

namespace quire::jit {
namespace {

// code[f][j][part] = the first turn's codes                                           emit_begin
// for each turn of F fours of keys:                                                   emit_turn
//   for each pass over R' of the query rows, for part:                                emit_products
//     prefetch a share of the next block's rows, and of this one's
//     for j, for r, for digit:                                                        emit_digits
//       sum[r][digit][f] += dot product of query[r][j][part][digit] and code[f][j][part], in int32
//     for r: scores[r] = sums of the lanes of a key, of all digits * scale[f] * factors[r]
//   code = the next turn's, between the products as registers get free
//
// Chains of one row would wait for themselves: there are digits * F * R' of them.
//
// 256 * that of the high digits + that of the middle ones: 2^15 * 2^8 * 32 elements < 2^31. Of small numbers
// that times 256 and that of the low ones fit, too: 32 * 8 * kLargestOfThree < 2^31, and what is above wraps
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
    int passes() const { return (key_.rows + rows_a_pass() - 1) / rows_a_pass(); }

    void emit_begin() override {
        if (fours_ > 1) hold_upper_half();
        ahead_rows_.follow(rows_);
        begin_codes(0);
        begin_ahead();
        codes_ = next_;
    }

    // Of the turn that `ahead_rows_` points to, so many turns ahead.
    void begin_codes(int ahead) {
        ahead_rows_.turn(row_);
        if (makes_scales(key_)) add_scales(&steps_, &ahead_rows_, ahead);
        next_.assign(size_t(sets(0)), {});
        for (size_t f = 0; f < next_.size(); ++f) {
            add_four(&steps_, &next_[f], &ahead_rows_, 0, int(f));
            if (form_.parts == 1) continue;
            for (size_t j = 0; j < 4; ++j)
                steps_.add([=] {
                    std::vector<Vec>& codes = next_[f];
                    codes.insert(codes.begin() + 2 * j + 1, vec("second part"));
                    loader_->unpack(&codes[2 * j]);
                });
        }
    }

    void emit_turn() override {
        if (!paces()) emit_prefetches(0, 1);
        if (turns_scales()) emit_scales();
        ahead_rows_.follow(rows_, keys_, count_);
        begin_codes(1);
        const std::vector<Vec> scales = vecs("scale", sets(0));
        for (int f = 0; f < sets(0); ++f) load_scales(scales[size_t(f)], f, {0, 0});
        for (int row = 0, occasion = 0; row < key_.rows; row += rows_a_pass()) {
            const int rows = std::min(rows_a_pass(), key_.rows - row);
            emit_scores(emit_products(row, rows, &occasion), scales, row);
        }
        free(scales);
        end_ahead();
    }

    Sums emit_products(int row, int rows, int* occasion) {
        stage("rows from " + std::to_string(row));
        Sums sums;
        for (int r = 0; r < rows; ++r) sums.push_back(begin_sums(row + r));
        const int pass = row / rows_a_pass();
        for (int part = 0; part < form_.parts; ++part) {
            if (paces()) emit_prefetches(pass * form_.parts + part, passes() * form_.parts);
            for (int i = part; i < 4 * form_.parts; i += form_.parts) {
                for (int r = 0; r < rows; ++r) emit_digits(sums[size_t(r)], i, row + r, occasion);
                if (pass + 1 < passes()) continue;
                for (const std::vector<Vec>& of_four : codes_) free(of_four[size_t(i)]);
            }
        }
        return sums;
    }

    void emit_digits(const Fours& sums, int i, int row, int* occasion) {
        constexpr int kOfRow = 1;  // free registers that what follows takes
        for (int digit = 0; digit < form_.digits; ++digit) {
            emit_dots(sums[size_t(digit)], codes_, i, vector_of({0, 0}, row), digit);
            steps_.on_occasion((*occasion)++, key_.rows * form_.vectors(), kOfRow);
        }
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

    // Rows from `first` on.
    void emit_scores(const Sums& sums, const std::vector<Vec>& scales, int first) {
        for (size_t r = 0; r < sums.size(); ++r) {
            for (size_t f = 0; f < scales.size(); ++f) {
                const Vec& total = sums[r][0][f];
                emit_total(sums[r], f);
                vmulps(total, total, scales[f]);
            }
            for (size_t digit = 1; digit < sums[r].size(); ++digit) free(sums[r][digit]);
        }
        for (size_t f = 0; form_.has_minima && f < scales.size(); ++f) add_minima(sums, f, first);
        std::vector<std::vector<Vec>> totals;
        for (const Fours& of_row : sums) totals.push_back(of_row[0]);
        store_scores(totals, first);
    }

    // A register at a time: the next turn's codes have taken most.
    void add_minima(const Sums& sums, size_t f, int first) {
        Temp minima(*this, "minima");
        load_minima(minima, int(f), {0, 0});
        for (size_t r = 0; r < sums.size(); ++r) {
            Temp sum(*this, "sum of the query"), part(*this, "part of it");
            load_query_sum(sum, sum_of({0, 0}, first + int(r)), part);
            vfmadd231ps(sums[r][0][f], *sum, minima);
        }
    }

    // What the digits of four keys are together, as a number, in that of the first.
    void emit_total(const Fours& sums, size_t f) {
        const Vec &total = sums[0][f], &low = sums.back()[f];
        const bool apart = form_.digits == 3 && !form_.small;
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
};

}  // namespace

bool has_whole_rows(const FoursForm& form) { return form.digits > 1 && form.chunks == 1 && form.run == 4; }

Status generate_qk_digits(const RowKey& key, std::vector<uint8_t>* code) {
    return QkDigits(key).finish(code);
}

}  // namespace quire::jit
