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

// part[n][w] = number 0 of the part
// for each pair of spans of it:                                                      emit_pair
//   acc[n][w] = dot products of the first span
//   what the two sums become one by                                                  emit_between
//   acc[n][w] += dot products of the second
//   part[n][w] += acc[n][w] and the pair's factor                                    emit_added
// scores[key + n][w] += part[n][w] * scale[key + n][group]
//
// Scores stay in registers; first numbers make the codes signed.
class TileQkPairs : public TileQkBytes {
protected:
    // lines: asked for with each pair of spans.
    TileQkPairs(const RowKey& key, int spare, int lines)
        : TileQkBytes(key, 1, spare, 3),
          lines_(lines),
          sums_(vecs("part", n_ * vecs_)),
          scores_(vecs("score", n_ * vecs_)) {}

    virtual void emit_between(int first, int pair) = 0;
    virtual void emit_added(int first, int pair) = 0;

    void emit_begin() override {
        emit_numbers_at();
        for (const Vec& v : scores_) zero(v);
    }

    // body(sum, a number of the part for each of its query rows)
    template <typename Body>
    void with_number(int first, int number, const Body& body) {
        for (int w = 0; w < vecs_; ++w) {
            const Vec& numbers = rows_[0];  // of no more use
            vmovups(numbers, number_at(first, number, w));
            for (int n = 0; n < n_; ++n) body(size_t(n * vecs_ + w), numbers);
        }
    }

    void emit_pairs(int first) {
        emit_start(sums_, first, 0);
        for (int pair = 0; pair < form_.part / (2 * kByteTileSpan); ++pair) {
            emit_pair(first, pair);
            for (int i = 0; i < lines_; ++i) ask_ahead(2 * kByteTileSpan / 4);
        }
    }

    const int lines_;
    const std::vector<Vec> sums_, scores_;

private:
    void emit_pair(int first, int pair) {
        for (const Vec& v : acc_) zero(v);
        for (int i = 0; i < 2 * kByteTileSpan; i += 4) {
            const int element = first + 2 * pair * kByteTileSpan + i;
            if (i == kByteTileSpan) emit_between(first, pair);
            emit_four(acc_, query_ + element / 4 * panel_bytes(), element_ + element);
        }
        emit_added(first, pair);
    }
};

// Between: acc[n][w] * 2^shift[pair][w] / 2^kLargestShift. Parts are numbers, factors the second spans'
// units.
class TileQkShifted : public TileQkPairs {
public:
    explicit TileQkShifted(const RowKey& key) : TileQkPairs(key, 0, lines(key)) { generate(); }

private:
    // Rows of 8-bit codes have as many lines as the products of one vector of query rows would ask for, most
    // of them in PV, too fast for DRAM: QK asks for more.
    static int lines(const RowKey& key) { return key.rows == 1 ? 2 : 1; }

    void emit_part(int first) override {
        emit_pairs(first);
        add_scaled(scores_, sums_, first / scale_group(key_.format), 1, [](size_t) {});
    }

    void emit_between(int first, int pair) override {
        with_number(first, 1 + 2 * pair, [&](size_t i, const Vec& shift) {
            vpsllvd(acc_[i], acc_[i], shift);
            vpsrad(acc_[i], acc_[i], kLargestShift);
        });
    }

    void emit_added(int first, int pair) override {
        with_number(first, 2 + 2 * pair, [&](size_t i, const Vec& factor) {
            vcvtdq2ps(acc_[i], acc_[i]);
            vfmadd231ps(sums_[i], acc_[i], factor);
        });
    }

    void emit_end() override { store_scores(scores_); }
};

// Between: the first sum becomes the upper word of the second (kSpanZero), and both are added by a product of
// words with two factors. Parts are whole numbers; the row's factor is left for the end.
class TileQkJoined : public TileQkPairs {
public:
    explicit TileQkJoined(const RowKey& key) : TileQkPairs(key, 1, 1) { generate(); }

private:
    void emit_begin() override {
        TileQkPairs::emit_begin();
        vmovups(base_, splat_bits(kSpanZero));
    }

    void emit_part(int first) override {
        emit_pairs(first);
        add_scaled(scores_, sums_, first / scale_group(key_.format), 1,
                   [&](size_t i) { vcvtdq2ps(sums_[i], sums_[i]); });
    }

    void emit_between(int, int) override {
        for (const Vec& v : acc_) raise_words(v, base_);
    }

    void emit_added(int first, int pair) override {
        with_number(first, 1 + pair,
                    [&](size_t i, const Vec& factors) { dot_words(sums_[i], acc_[i], factors); });
    }

    void emit_end() override { store_scaled(scores_); }

    const Vec base_ = vec("second sums' start");
};

// part[n][w] = number 0 of the part
// for each span of it, of two fours:
//   part[n][w] += (codes * bytes + codes * bytes) * factor[span][w], in words          emit_span
// scores[key + n][w] += part[n][w] * scale[key + n][group], and in the end times the row's factor
//
// Without VNNI. Scores are in memory.
//
// live: part[n * W] + of the query [2 * W] + two of codes and two of products
class TileQkWeighed : public TileQkBytes {
public:
    explicit TileQkWeighed(const RowKey& key)
        : TileQkBytes(key, 1, kBesides, 1), second_rows_(vecs("second rows", vecs_)) {
        generate();
    }

private:
    // Spans, of three multiplications each, from one line that is asked for to the next.
    static constexpr int kOfLines = 4;
    static constexpr int kBesides = 5;  // fewer keys at a time than fit beside a register of each four

    void emit_begin() override {
        TileQkBytes::emit_begin();
        emit_numbers_at();
    }

    void emit_part(int first) override {
        emit_start(acc_, first, 0);
        for (int span = 0; span < form_.part / kByteTileSpan; ++span) {
            emit_span(first, span);
            if ((first / kByteTileSpan + span) % kOfLines == 0) ask_ahead(kOfLines * 3);
        }
        for (int n = 0; n < n_; ++n) {
            Temp scale(*this, "scale");
            load_scale(scale, n, first / scale_group(key_.format));
            for (int w = 0; w < vecs_; ++w) {
                vcvtdq2ps(acc(n, w), acc(n, w));
                vfmadd213ps(acc(n, w), scale, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], acc(n, w));
            }
        }
    }

    void emit_span(int first, int span) {
        const int element = first + span * kByteTileSpan;
        for (int w = 0; w < vecs_; ++w) {
            const RegExp row = query_ + element / 4 * panel_bytes() + w * vec_bytes();
            vmovups(rows_[size_t(w)], ptr[row]);
            vmovups(second_rows_[size_t(w)], ptr[row + panel_bytes()]);
        }
        for (int n = 0; n < n_; ++n) {
            Temp codes(*this, "codes"), second(*this, "second codes");
            const RegExp at = element_ + n * key_.tile_lanes() * 4 + element;
            broadcast(codes, ptr[at]);
            broadcast(second, ptr[at + 4]);
            for (int w = 0; w < vecs_; ++w) {
                Temp sum(*this, "sum"), other(*this, "other");
                vpmaddubsw(sum, codes, rows_[size_t(w)]);
                vpmaddubsw(other, second, second_rows_[size_t(w)]);
                vpaddw(sum, sum, other);
                vpmaddwd(sum, sum, number_at(first, 1 + span, w));
                vpaddd(acc(n, w), acc(n, w), sum);
            }
        }
    }

    void emit_end() override { emit_factors(); }

    const std::vector<Vec> second_rows_;
};

}  // namespace

bool has_tile_key_bytes(const RowKey& key) {
    const bool weighs = key.target->vector_bits == 256 && has_small_numbers(key.format);
    return (key.target->vnni || weighs) && has_bytes(key.format) && !has_minima(key.format) &&
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
           : form.weighs ? TileQkWeighed(key).finish(code)
           : form.shifts ? TileQkShifted(key).finish(code)
                         : TileQkOneByte(key).finish(code);
}

}  // namespace quire::jit
