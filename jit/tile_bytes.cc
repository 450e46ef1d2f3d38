#include "jit/tile_bytes.h"

#include <algorithm>

#include "jit/byte_loader.h"
#include "jit/tile_codes.h"

namespace quire::jit {
namespace {

// for key in 0..count step n:
//   scores[key + n][w] = 0
//   for each part of the row's groups:
//     scores[key + n][w] += what its bytes are, times scale[key + n][group]         emit_part
//
// The bytes of a part are a run for each digit in the query, and one in the keys.
class TileQkBytes : public TileQkCodes {
protected:
    TileQkBytes(const RowKey& key, int digits, int spare = 0, int kept = 2)
        : TileQkCodes(key, spare, kept), form_(key.format, digits, *key.target) {}

    virtual void emit_part(int first) = 0;

    void emit_numbers_at() { lea(numbers_, ptr[query_ + form_.digits * key_.dim / 4 * panel_bytes()]); }

    // Four elements added to sums[n][w]: in the query at `row`, in the first of the keys at `element`.
    void emit_four(const std::vector<Vec>& sums, const RegExp& row, const RegExp& element) {
        emit_step(
            sums, row, [&](int n) { return element + n * key_.tile_lanes() * 4; },
            [&](const Vec& sum, const Vec& codes, const Xbyak::Operand& query) {
                dot_bytes(sum, codes, query);
            });
    }

    // Number i of the part. One load for all keys; moves between registers cost no pipe.
    void emit_start(const std::vector<Vec>& sums, int first, int i) {
        for (int w = 0; w < vecs_; ++w) {
            vmovups(rows_[0], number_at(first, i, w));
            for (int n = 0; n < n_; ++n) vmovaps(sums[size_t(n * vecs_ + w)], rows_[0]);
        }
    }

    // Scores that are in registers, into memory.
    void store_scores(const std::vector<Vec>& scores) {
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[score_at(n, w)], scores[size_t(n * vecs_ + w)]);
        emit_new_max(scores);
    }
    // The same times the rows' factors.
    void store_scaled(const std::vector<Vec>& scores) {
        stage("factors");
        mov(rax, ptr[args() + offsetof(TileQkArgs, factors)]);
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, ptr[rax + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n)
                vmulps(scores[size_t(n * vecs_ + w)], scores[size_t(n * vecs_ + w)], factor);
        }
        store_scores(scores);
    }

    Address number_at(int first, int i, int w) const {
        return ptr[numbers_ + (first / form_.part * form_.numbers + i) * panel_bytes() + w * vec_bytes()];
    }

    const ByteTileForm form_;

private:
    static constexpr int kLeastTurn = 32;

    int group() const { return scale_group(key_.format); }
    // A row of one group has no next scale.
    int turn() const override {
        if (key_.groups() == 1) return form_.part;
        return std::max(1, kLeastTurn / group()) * group();
    }

    void emit_elements(int count) override {
        for (int first = 0; first < count; first += form_.part) {
            stage("elements from " + std::to_string(first));
            emit_part(first);
        }
    }

    void emit_next() override {
        add(query_, form_.digits * turn() / 4 * panel_bytes());
        add(element_, turn());  // a byte each
        add(numbers_, turn() / form_.part * form_.numbers * panel_bytes());
        if (key_.groups() > 1) add(scale_, turn() / group() * 4);
    }

    const Gpr numbers_ = gpr("numbers");
};

// part[n][w] = zero[part][w]
// for each span of it:
//   acc[n][w] = start[span][w] + dot products of its bytes                         emit_span
//   part[n][w] += acc[n][w], read as a number, * factor[span][w]                   emit_factors
//
// Starts make the codes signed, and sums the bits of numbers (args.h: kByteTileZero), which zeros take out
// again: so a sum costs an FMA, and no conversion.
class TileQkOneByte : public TileQkBytes {
public:
    explicit TileQkOneByte(const RowKey& key)
        : TileQkBytes(key, 1, 0, keeps_scores(key) ? 3 : 2),
          sums_(vecs("part", n_ * vecs_)),
          scores_(keeps_scores(key) ? vecs("score", n_ * vecs_) : std::vector<Vec>()) {
        generate();
    }

private:
    // Half the registers hold no scores beside two sums.
    static bool keeps_scores(const RowKey& key) { return key.target->vector_bits == 512; }

    void emit_begin() override {
        if (scores_.empty()) TileQkBytes::emit_begin();
        for (const Vec& v : scores_) zero(v);
        emit_numbers_at();
    }

    void emit_part(int first) override {
        emit_start(sums_, first, 0);
        for (int span = 0; span < form_.part / kByteTileSpan; ++span) {
            emit_span(first, span);
            emit_span_factors(first, span);
            ask_ahead(kByteTileSpan / 4);
        }
        emit_scaled(first / scale_group(key_.format));
    }

    void emit_span(int first, int span) {
        emit_start(acc_, first, 1 + 2 * span);
        for (int i = 0; i < kByteTileSpan; i += 4) {
            const int element = first + span * kByteTileSpan + i;
            emit_four(acc_, query_ + element / 4 * panel_bytes(), element_ + element);
        }
    }

    void emit_span_factors(int first, int span) {
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, number_at(first, 2 + 2 * span, w));
            for (int n = 0; n < n_; ++n) vfmadd231ps(sums_[size_t(n * vecs_ + w)], acc(n, w), factor);
        }
    }

    void emit_scaled(int group) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            for (int w = 0; w < vecs_; ++w) {
                const Vec& sum = sums_[size_t(n * vecs_ + w)];
                if (!scores_.empty()) {
                    vfmadd231ps(scores_[size_t(n * vecs_ + w)], sum, scale);
                    continue;
                }
                vfmadd213ps(sum, scale, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], sum);
            }
        }
    }

    void emit_end() override { scores_.empty() ? emit_new_max(sums_) : store_scores(scores_); }

    const std::vector<Vec> sums_, scores_;
};

// total[n][w] = start[part][w]
// for each pair of spans of it:                                                      emit_pair
//   acc[n][w] = dot products of each, a word; of the second from 0 on, so that it borrows nothing from the first
//   total[n][w] += sum of both words * factors[pair][w]
// scores[key + n][w] += total[n][w], as a number, * scale[key + n][group]            emit_scaled
//
// Starts make the codes signed, and take out what sums begin with.
class TileQkJoined : public TileQkBytes {
public:
    explicit TileQkJoined(const RowKey& key)
        : TileQkBytes(key, 1, 1, 3),
          totals_(vecs("total", n_ * vecs_)),
          sums_(vecs("score", n_ * vecs_)) {
        generate();
    }

private:
    void emit_begin() override {
        emit_numbers_at();
        vmovups(base_, splat_bits(kSpanZero));
        for (const Vec& v : sums_) zero(v);
    }

    void emit_part(int first) override {
        emit_start(totals_, first, 0);
        for (int pair = 0; pair < form_.part / (2 * kByteTileSpan); ++pair) {
            emit_pair(first, pair);
            ask_ahead(2 * kByteTileSpan / 4);
        }
        emit_scaled(first / scale_group(key_.format));
    }

    void emit_pair(int first, int pair) {
        for (const Vec& v : acc_) zero(v);
        for (int i = 0; i < 2 * kByteTileSpan; i += 4) {
            const int element = first + 2 * pair * kByteTileSpan + i;
            if (i == kByteTileSpan) emit_second();
            emit_four(acc_, query_ + element / 4 * panel_bytes(), element_ + element);
        }
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factors = rows_[0];  // of no more use
            vmovups(factors, number_at(first, 1 + pair, w));
            for (int n = 0; n < n_; ++n) dot_words(totals_[size_t(n * vecs_ + w)], acc(n, w), factors);
        }
    }

    // (A rotation would do both, and take the place of a product on Zen 4.)
    void emit_second() {
        for (const Vec& v : acc_) {
            vpslld(v, v, 16);
            bit_or(v, v, base_);
        }
    }

    void emit_scaled(int group) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            for (int w = 0; w < vecs_; ++w) {
                const Vec& total = totals_[size_t(n * vecs_ + w)];
                vcvtdq2ps(total, total);
                vfmadd231ps(sums_[size_t(n * vecs_ + w)], total, scale);
            }
        }
    }

    void emit_end() override { store_scaled(sums_); }

    const std::vector<Vec> totals_, sums_;
    const Vec base_ = vec("second sums' start");
};

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
            vbroadcastss(codes, ptr[element + n * key_.tile_lanes() * 4]);
            for (int w = 0; w < vecs_; ++w) {
                dot_bytes(high_[size_t(n * vecs_ + w)], codes, rows_[size_t(w)]);
                dot_bytes(acc(n, w), codes, low_rows_[size_t(w)]);
            }
        }
    }

    void emit_scaled(int group) {
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            for (int w = 0; w < vecs_; ++w) {
                const Vec& high = high_[size_t(n * vecs_ + w)];
                vpslld(high, high, 8);
                vpaddd(acc(n, w), acc(n, w), high);
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd231ps(sums_[size_t(n * vecs_ + w)], acc(n, w), scale);
            }
        }
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
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            if (units != 1) vmulps(scale, scale, splat(units));
            for (int w = 0; w < vecs_; ++w) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd231ps(sums_[size_t(n * vecs_ + w)], acc(n, w), scale);
            }
        }
    }

    void emit_end() override { store_scaled(sums_); }

    const std::vector<Vec> sums_;
    const Gpr row_ = gpr("row"), four_ = gpr("four"), digits_ = gpr("digits"), turns_ = gpr("turns");
};

}  // namespace

bool has_tile_key_bytes(const RowKey& key) {
    return key.target->vnni && has_bytes(key.format, *key.target) &&
           scale_group(key.format) % kByteTileSpan == 0;
}

bool has_tile_key_two_bytes(const RowKey& key) { return has_tile_key_three_bytes(key); }

bool has_tile_key_three_bytes(const RowKey& key) {
    return key.target->vector_bits == 512 && has_tile_key_bytes(key);
}

Status generate_tile_qk_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    switch (key.query_bytes()) {
        case 1:
            return ByteTileForm(key.format, 1, *key.target).joins ? TileQkJoined(key).finish(code)
                                                                  : TileQkOneByte(key).finish(code);
        case 2: return TileQkTwoBytes(key).finish(code);
        default: return TileQkThreeBytes(key).finish(code);
    }
}

}  // namespace quire::jit
