#include "jit/tile_digits.h"

#include <algorithm>

#include "jit/tile_code_bytes.h"

namespace quire::jit {
namespace {

// for each part:
//   sum[d][n][w] = dot products of digit d of two or three; the last sum begins with a start, of three digits
//                  in two sums (ByteTileForm) the first one, too
//   scores[key + n][w] += what the sums are together, as a number or two, * scale[key + n][group]
// scores[key + n][w] *= factors[w]
//
// Each element of a key serves all digits: as the broadcast operand it is a load for every other product, or
// for three. Three have registers for that with one or two vectors of query rows, which have too few sums of
// one digit to keep two pipes busy. Starts make the codes signed. No sum overflows, with codes c of at most
// 255 around the zero z: of 128 elements |sum of (c - z) (256 high + low)| < 128 * 128 * 2^15 = 2^29, and
// what is on the way may wrap around; of three digits as below.
class TileQkDigits : public TileQkBytes {
public:
    explicit TileQkDigits(const RowKey& key)
        : TileQkBytes(key, key.query_bytes(), (key.query_bytes() - 1) * key.rows, key.query_bytes() + 1),
          scores_(vecs("score", n_ * vecs_)) {
        for (int digit = 0; digit + 1 < form_.digits; ++digit) {
            sums_.push_back(vecs("upper digit", n_ * vecs_));
            digit_rows_.push_back(vecs("upper digit's rows", vecs_));
        }
        sums_.push_back(acc_);
        digit_rows_.push_back(rows_);
        generate();
    }

private:
    static constexpr int kMostStraight = 32;

    void emit_begin() override {
        for (const Vec& v : scores_) zero(v);
        emit_numbers_at();
    }

    void emit_part(int first) override {
        emit_starts(first);
        const int straight = std::min(form_.part, kMostStraight), of_a_line = 8 * (form_.digits - 1);
        lea(row_, ptr[query_ + first / 4 * form_.digits * panel_bytes()]);
        lea(four_, ptr[element_ + first]);
        Label each;
        if (straight < form_.part) mov(turns_, form_.part / straight);
        L(each);
        for (int i = 0; i < straight; i += 4) {
            emit_digits(row_ + i / 4 * panel_bytes(), four_ + i);
            if (i % of_a_line == of_a_line - 4) ask_ahead(4);
        }
        if (straight < form_.part) {
            add(row_, straight / 4 * panel_bytes());
            add(four_, straight);
            dec(turns_);
            jnz(each, T_NEAR);
        }
        emit_scaled(first / scale_group(key_.format));
    }

    void emit_starts(int first) {
        int number = 0;
        for (int digit = 0; digit < form_.digits; ++digit) {
            const bool begins = digit + 1 == form_.digits || (form_.sums == 2 && digit == 0);
            if (begins)
                emit_start(sums_[size_t(digit)], first, number++);
            else
                for (const Vec& v : sums_[size_t(digit)]) zero(v);
        }
    }

    // Four elements of all digits: in the query at `row` and runs behind it.
    void emit_digits(const RegExp& row, const RegExp& element) {
        const int run = form_.part / 4 * panel_bytes();
        for (int digit = 0; digit < form_.digits; ++digit)
            for (int w = 0; w < vecs_; ++w)
                vmovups(digit_rows_[size_t(digit)][size_t(w)], ptr[row + digit * run + w * vec_bytes()]);
        for (int n = 0; n < n_; ++n) {
            Temp codes(*this, "codes");
            broadcast(codes, ptr[element + n * key_.tile_lanes() * 4]);
            for (size_t digit = 0; digit < sums_.size(); ++digit)
                for (int w = 0; w < vecs_; ++w)
                    dot_bytes(sums_[digit][size_t(n * vecs_ + w)], codes, digit_rows_[digit][size_t(w)]);
        }
    }

    void emit_scaled(int group) {
        const std::vector<Vec>& last = sums_.back();
        if (form_.digits == 3 && form_.sums == 2) {
            const std::vector<Vec>& middle = sums_[1];
            add_scaled(scores_, middle, group, 256, [&](size_t i) {
                join(middle[i], sums_[0][i]);
                vcvtdq2ps(middle[i], middle[i]);
            });
            return add_scaled(scores_, last, group, 1, [&](size_t i) { vcvtdq2ps(last[i], last[i]); });
        }
        add_scaled(scores_, last, group, 1, [&](size_t i) {
            for (size_t digit = 1; digit < sums_.size(); ++digit) join(sums_[digit][i], sums_[digit - 1][i]);
            vcvtdq2ps(last[i], last[i]);
        });
    }

    // sum += 256 upper
    void join(const Vec& sum, const Vec& upper) {
        vpslld(upper, upper, 8);
        vpaddd(sum, sum, upper);
    }

    void emit_end() override { store_scaled(scores_); }

    std::vector<std::vector<Vec>> sums_, digit_rows_;  // the highest digit first
    const std::vector<Vec> scores_;
    const Gpr four_ = gpr("four");
    const Gpr& turns_ = rax;  // no other register is left
};

// score[n][w] = 0
// for each part, for each of its sums, which are of the digits that share it: all; or the first two, and the
// last
//   acc[n][w] = start + dot products of the digits, times 256 for each that follows        emit_digits
//   score[n][w] += acc[n][w], as a number, * scale[key + n][group], times 256 where a digit follows
// scores[key + n][w] = score[n][w] * factors[w]                                            emit_end
//
// Starts make the codes signed. Those of two sums come first, that of the middle digit in the last sum; that
// of one sum is added in the end. No sum overflows, with codes c of at most 255 around the zero z: of 128
// elements,
//   |sum of (c - z) 256 high| <= 128 * 128 * 256 * 127 < 2^29, |sum of c middle| <= 128 * 255 * 128 < 2^22
//   |sum of c low - z (256 middle + low)| < 2^22 + 128 * 128 * 128 * 257 < 2^30
// and of nibbles what ByteTileForm says. What is on the way there may wrap around.
class TileQkThreeBytes : public TileQkBytes {
public:
    explicit TileQkThreeBytes(const RowKey& key) : TileQkBytes(key, 3), sums_(vecs("score", n_ * vecs_)) {
        generate();
    }

private:
    static constexpr int kMostStraight = 32;

    void emit_begin() override {
        emit_numbers_at();
        for (const Vec& v : sums_) zero(v);
    }

    void emit_part(int first) override {
        const int group = first / scale_group(key_.format);
        lea(row_, ptr[query_ + first / 4 * 3 * panel_bytes()]);
        if (form_.sums == 1) {
            for (const Vec& v : acc_) zero(v);
            emit_digits(first, 3);
            emit_number(first);
            return emit_scores(group, 1);
        }
        emit_start(acc_, first, 0);
        emit_digits(first, 2);
        emit_scores(group, 256);
        emit_start(acc_, first, 1);
        emit_digits(first, 1);
        emit_scores(group, 1);
    }

    // The next `count` digits. In loops: straight code of a part is slower by its mere length.
    void emit_digits(int first, int count) {
        Label each_digit, first_digit;
        if (count > 1) {
            mov(digits_, count);
            jmp(first_digit, T_NEAR);
            L(each_digit);
            for (const Vec& v : acc_) vpslld(v, v, 8);
            L(first_digit);
        }
        emit_digit(first);
        if (count > 1) {
            dec(digits_);
            jnz(each_digit, T_NEAR);
        }
    }

    void emit_digit(int first) {
        const int straight = std::min(form_.part, kMostStraight);
        lea(four_, ptr[element_ + first]);
        Label each;
        if (straight < form_.part) mov(turns_, form_.part / straight);
        L(each);
        for (int i = 0; i < straight; i += 4) emit_four(acc_, row_ + i / 4 * panel_bytes(), four_ + i);
        add(row_, straight / 4 * panel_bytes());
        ask_ahead(straight / 4);
        if (straight == form_.part) return;
        add(four_, straight);
        dec(turns_);
        jnz(each, T_NEAR);
    }

    void emit_number(int first) {
        for (int w = 0; w < vecs_; ++w) {
            const Vec& start = rows_[size_t(w)];  // of no more use
            vmovups(start, number_at(first, 0, w));
            for (int n = 0; n < n_; ++n) vpaddd(acc(n, w), acc(n, w), start);
        }
    }

    void emit_scores(int group, float units) {
        add_scaled(sums_, acc_, group, units, [&](size_t i) { vcvtdq2ps(acc_[i], acc_[i]); });
    }

    void emit_end() override { store_scaled(sums_); }

    const std::vector<Vec> sums_;
    const Gpr four_ = gpr("four"), digits_ = gpr("digits");
    const Gpr& turns_ = rax;  // no other register is left
};

}  // namespace

Status generate_tile_qk_digits(const RowKey& key, std::vector<uint8_t>* code) {
    const bool together = key.query_bytes() == 2 || key.rows <= 2;
    return together ? TileQkDigits(key).finish(code) : TileQkThreeBytes(key).finish(code);
}

}  // namespace quire::jit
