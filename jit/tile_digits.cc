#include "jit/tile_digits.h"

#include <algorithm>

#include "jit/tile_code_bytes.h"

namespace quire::jit {
namespace {

// for each part:
//   high[n][w] = dot products of the first digits;  acc[n][w] = start + dot products of the second
//   scores[key + n][w] += (256 high + acc, as a number) * scale[key + n][group]
// scores[key + n][w] *= factors[w]
//
// Each element of a key serves both digits: as the broadcast operand it is a load for every other product.
// Starts make the codes signed. No sum overflows, with codes c of at most 255 around the zero z: of 128
// elements |sum of (c - z) (256 high + low)| < 128 * 128 * 2^15 = 2^29, and what is on the way may wrap
// around.
class TileQkTwoBytes : public TileQkBytes {
public:
    explicit TileQkTwoBytes(const RowKey& key)
        : TileQkBytes(key, 2, key.rows, 3),
          high_(vecs("high", n_ * vecs_)),
          low_rows_(vecs("low rows", vecs_)),
          sums_(vecs("score", n_ * vecs_)) {
        generate();
    }

private:
    static constexpr int kMostStraight = 32;

    void emit_begin() override {
        for (const Vec& v : sums_) zero(v);
        emit_numbers_at();
    }

    void emit_part(int first) override {
        emit_start(acc_, first, 0);
        for (const Vec& v : high_) zero(v);
        const int straight = std::min(form_.part, kMostStraight);
        lea(row_, ptr[query_ + first / 4 * 2 * panel_bytes()]);
        lea(four_, ptr[element_ + first]);
        Label each;
        if (straight < form_.part) mov(turns_, form_.part / straight);
        L(each);
        for (int i = 0; i < straight; i += 4) {
            emit_both(row_ + i / 4 * panel_bytes(), four_ + i);
            if (i % 8 == 4) ask_ahead(4);
        }
        if (straight < form_.part) {
            add(row_, straight / 4 * panel_bytes());
            add(four_, straight);
            dec(turns_);
            jnz(each, T_NEAR);
        }
        emit_scaled(first / scale_group(key_.format));
    }

    // Four elements of both digits: in the query at `row` and a run behind it.
    void emit_both(const RegExp& row, const RegExp& element) {
        const int run = form_.part / 4 * panel_bytes();
        for (int w = 0; w < vecs_; ++w) {
            vmovups(rows_[size_t(w)], ptr[row + w * vec_bytes()]);
            vmovups(low_rows_[size_t(w)], ptr[row + run + w * vec_bytes()]);
        }
        for (int n = 0; n < n_; ++n) {
            Temp codes(*this, "codes");
            broadcast(codes, ptr[element + n * key_.tile_lanes() * 4]);
            for (int w = 0; w < vecs_; ++w) {
                dot_bytes(high_[size_t(n * vecs_ + w)], codes, rows_[size_t(w)]);
                dot_bytes(acc(n, w), codes, low_rows_[size_t(w)]);
            }
        }
    }

    void emit_scaled(int group) {
        add_scaled(sums_, acc_, group, 1, [&](size_t i) {
            vpslld(high_[i], high_[i], 8);
            vpaddd(acc_[i], acc_[i], high_[i]);
            vcvtdq2ps(acc_[i], acc_[i]);
        });
    }

    void emit_end() override { store_scaled(sums_); }

    const std::vector<Vec> high_, low_rows_, sums_;
    const Gpr row_ = gpr("row"), four_ = gpr("four"), turns_ = gpr("turns");
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
    const Gpr row_ = gpr("row"), four_ = gpr("four"), digits_ = gpr("digits");
    const Gpr& turns_ = rax;  // no other register is left
};

}  // namespace

Status generate_tile_qk_digits(const RowKey& key, std::vector<uint8_t>* code) {
    return key.query_bytes() == 2 ? TileQkTwoBytes(key).finish(code) : TileQkThreeBytes(key).finish(code);
}

}  // namespace quire::jit
