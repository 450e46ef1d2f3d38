#include "jit/tile_bytes.h"

#include "jit/byte_loader.h"
#include "jit/tile_code_bytes.h"
#include "jit/tile_digits.h"

namespace quire::jit {
namespace {

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
    static bool keeps_scores(const RowKey& key) { return key.target->num_vecs() > 16; }

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
        if (!scores_.empty()) return add_scaled(scores_, sums_, group, 1, [](size_t) {});
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, group);
            for (int w = 0; w < vecs_; ++w) {
                const Vec& sum = sums_[size_t(n * vecs_ + w)];
                vfmadd213ps(sum, scale, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], sum);
            }
        }
    }

    void emit_end() override { scores_.empty() ? emit_new_max(sums_) : store_scores(scores_); }

    const std::vector<Vec> sums_, scores_;
};

// part[n][w] = zero[part][w]
// for each pair of spans of it:                                                      emit_pair
//   acc[n][w] = dot products of the first
//   acc[n][w] = acc[n][w] * 2^shift[pair][w] / 2^kLargestShift
//   part[n][w] += (acc[n][w] + dot products of the second) * factor[pair][w]
// scores[key + n][w] += part[n][w] * scale[key + n][group]                           add_scaled
//
// Zeros make the codes signed.
class TileQkShifted : public TileQkBytes {
public:
    explicit TileQkShifted(const RowKey& key)
        : TileQkBytes(key, 1, 0, 3), sums_(vecs("part", n_ * vecs_)), scores_(vecs("score", n_ * vecs_)) {
        generate();
    }

private:
    void emit_begin() override {
        emit_numbers_at();
        for (const Vec& v : scores_) zero(v);
    }

    void emit_part(int first) override {
        emit_start(sums_, first, 0);
        for (int pair = 0; pair < form_.part / (2 * kByteTileSpan); ++pair) {
            emit_pair(first, pair);
            ask_ahead(2 * kByteTileSpan / 4);
        }
        add_scaled(scores_, sums_, first / scale_group(key_.format), 1, [](size_t) {});
    }

    void emit_pair(int first, int pair) {
        for (const Vec& v : acc_) zero(v);
        for (int i = 0; i < 2 * kByteTileSpan; i += 4) {
            const int element = first + 2 * pair * kByteTileSpan + i;
            if (i == kByteTileSpan) emit_shift(first, 1 + 2 * pair);
            emit_four(acc_, query_ + element / 4 * panel_bytes(), element_ + element);
        }
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factor = rows_[0];  // of no more use
            vmovups(factor, number_at(first, 2 + 2 * pair, w));
            for (int n = 0; n < n_; ++n) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd231ps(sums_[size_t(n * vecs_ + w)], acc(n, w), factor);
            }
        }
    }

    void emit_shift(int first, int number) {
        for (int w = 0; w < vecs_; ++w) {
            const Vec& shift = rows_[0];  // of no more use
            vmovups(shift, number_at(first, number, w));
            for (int n = 0; n < n_; ++n) {
                vpsllvd(acc(n, w), acc(n, w), shift);
                vpsrad(acc(n, w), acc(n, w), kLargestShift);
            }
        }
    }

    void emit_end() override { store_scores(scores_); }

    const std::vector<Vec> sums_, scores_;
};

// total[n][w] = start[part][w]
// for each pair of spans of it:                                                      emit_pair
//   acc[n][w] = dot products of each, a word (kSpanZero)
//   total[n][w] += sum of both words * factors[pair][w]
// scores[key + n][w] += total[n][w], as a number, * scale[key + n][group]            add_scaled
//
// Starts make the codes signed, and take out what sums begin with.
class TileQkJoined : public TileQkBytes {
public:
    explicit TileQkJoined(const RowKey& key)
        : TileQkBytes(key, 1, 1, 3), totals_(vecs("total", n_ * vecs_)), sums_(vecs("score", n_ * vecs_)) {
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
        add_scaled(sums_, totals_, first / scale_group(key_.format), 1,
                   [&](size_t i) { vcvtdq2ps(totals_[i], totals_[i]); });
    }

    void emit_pair(int first, int pair) {
        for (const Vec& v : acc_) zero(v);
        for (int i = 0; i < 2 * kByteTileSpan; i += 4) {
            const int element = first + 2 * pair * kByteTileSpan + i;
            if (i == kByteTileSpan)
                for (const Vec& v : acc_) raise_words(v, base_);
            emit_four(acc_, query_ + element / 4 * panel_bytes(), element_ + element);
        }
        for (int w = 0; w < vecs_; ++w) {
            const Vec& factors = rows_[0];  // of no more use
            vmovups(factors, number_at(first, 1 + pair, w));
            for (int n = 0; n < n_; ++n) dot_words(totals_[size_t(n * vecs_ + w)], acc(n, w), factors);
        }
    }

    void emit_end() override { store_scaled(sums_); }

    const std::vector<Vec> totals_, sums_;
    const Vec base_ = vec("second sums' start");
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
    if (key.query_bytes() > 1) return generate_tile_qk_digits(key, code);
    const ByteTileForm form(key.format, 1, *key.target);
    return form.joins    ? TileQkJoined(key).finish(code)
           : form.shifts ? TileQkShifted(key).finish(code)
                         : TileQkOneByte(key).finish(code);
}

}  // namespace quire::jit
