#include "jit/token_qk_bytes.h"

#include <algorithm>
#include <cstddef>

#include "jit/token_qk_turns.h"

namespace quire::jit {
namespace {

// The largest divisor of `size`, both multiples of 8, that is at most `most`.
int token_divisor(int size, int most) {
    int d = std::min(size, most);
    while (size % d != 0) d -= 8;
    return d;
}

// In a pass: scores = 0                                                                    emit_pass
//   for each group, for each run of it: sums[r][digit][2] = 0 or starts                   emit_run
//     for each part of the run: prefetch a share of the next blocks
//       for each dword: its codes as bytes from 0 on (byte loader)                        emit_dword
//         for r, for each digit: sums += dot product of the query's and codes, in int32
//     scores[r] += float(sums) * scales[2]                                                emit_digits
//   digits: scores[r] *= factors[r]                                                       emit_factors
//
// Each dword of the query is read once for both vectors. Two digits are 256 * high + low, |query| < 2^15;
// three of nibbles go into one sum, too: 2^23 * 2^3 * 32 elements at most, as largest_digits is smaller; of
// int8 the low ones do not, and are another number: 2^15 * 2^7 * 128 < 2^31. Sums of bytes are of eight
// elements, and multiplied by their factor. Without VNNI they are words, as in jit/qk_fours.cc.
//
// live: sums[R' * digits * 2] (by eights: and totals) + codes[2 * parts] + q (words: two more) + 256 + the
//       loader's
class TokenQkBytes : public TokenQkTurns {
public:
    explicit TokenQkBytes(const RowKey& key) : TokenQkTurns(key, loops(key) < 2) { generate(); }

private:
    static constexpr int kPart = 32;  // elements; what the code has once
    using Rows = std::vector<Pair>;   // [R']

    void emit_kept() override {
        if (form_.chains == 2) vmovups(base_ = vec("digit's base"), splat(256));
        loader_->hold(held() - (form_.chains == 2));
    }
    int held() const { return num_vecs() == 32 ? 2 : 1; }

    static int part_of(int run) { return token_divisor(run, kPart); }
    int part() const { return part_of(form_.run); }
    int runs_of_group() const { return scale_group(key_.format) / form_.run; }
    static int loops(const RowKey& key) {  // inside each other, with a register each
        const int run = TokenBytesForm(key).run;
        return (key.groups() > 1) + (scale_group(key.format) / run > 1) + (run > part_of(run));
    }

    // For each row and vector: by eights one and the run's.
    int sums() const { return form_.by_eights() ? 2 : form_.digits; }
    int rows_a_pass() const override {
        const int temps = form_.weighs_words ? 3 : 1;
        return rows_of((num_vecs() - kVectors * parts() - temps - held()) / (kVectors * sums()));
    }

    void emit_pass(int row, int rows) override {
        {
            Temp none(*this, "none");
            zero(none);
            for (int r = 0; r < rows; ++r)
                for (int b = 0; b < kVectors; ++b) vmovups(ptr[scores_at(row + r, b)], *none);
        }
        begin_pass(row);
        if (row == 0) prefetch_.ask(prefetch_.rest(blocks(), key_.dim / part()));
        times(key_.groups(), "groups left", [&] {
            times(runs_of_group(), "runs left", [&] { emit_run(row, rows); });
            add(scales_, kBlockTokens * 2);
        });
        if (!form_.by_eights()) emit_factors(row, rows);
    }

    void emit_run(int row, int rows) {
        std::vector<Rows> sums;  // by digit; by eights, of a factor and of the run
        for (int i = 0; i < this->sums(); ++i) {
            sums.emplace_back();
            for (int r = 0; r < rows; ++r) sums.back().push_back(vecs("sum", kVectors));
        }
        for (int r = 0; r < rows; ++r) form_.by_eights() ? zero_both(sums[1][size_t(r)]) : start(sums, r);
        times(form_.run / part(), "parts left", [&] {
            const int dwords = part() / of_dword();
            const TokenPrefetch::Share share = prefetch_.share(blocks(), key_.dim / part());
            for (int i = 0; i < dwords; ++i) {
                if (row == 0) prefetch_.ask(share, i, dwords);
                if (row == 0 && prefetch_.asks_again()) ask_ahead(i);
                emit_dword(sums, i);
            }
            add(block_, part() / of_dword() * kBlockTokens * 4);
            add(element_, part() * form_.dwords());
            if (form_.by_eights()) add(starts_, 8 * part() / TokenBytesForm::kOfFactor);
        });
        if (!form_.by_eights()) emit_digits(sums);
        emit_scaled(sums.back(), row);
        for (const Rows& of_rows : sums)
            for (const Pair& pair : of_rows) free(pair);
        if (!form_.by_eights()) add(starts_, 4 * form_.chains);
    }

    // A chain's start is that of its lowest digit, which is not shifted.
    void start(const std::vector<Rows>& sums, int r) {
        for (size_t digit = 0; digit < sums.size(); ++digit) {
            const int above = int(sums.size() - 1 - digit);  // digits below it
            if (above < form_.chains)
                load_both(sums[digit][size_t(r)], starts_at(r, form_.chains - 1 - above));
            else
                zero_both(sums[digit][size_t(r)]);
        }
    }

    void emit_dword(const std::vector<Rows>& sums, int i) {
        const std::vector<Pair> codes = load_codes(i);
        for (int p = 0; p < parts(); ++p) {
            const int four = i * parts() + p;
            if (form_.weighs_words)
                emit_words(sums[0], codes[size_t(p)], four);
            else if (form_.by_eights())
                emit_bytes(sums, codes[size_t(p)], four);
            else
                emit_products(sums, codes[size_t(p)], four);
        }
        for (const Pair& pair : codes) free(pair);
    }

    void emit_products(const std::vector<Rows>& sums, const Pair& codes, int four) {
        for (size_t r = 0; r < sums[0].size(); ++r)
            for (int digit = 0; digit < form_.digits; ++digit)
                emit_dots(sums[size_t(digit)][r], codes, int(r), four * form_.digits + digit);
    }

    void emit_words(const Rows& sums, const Pair& codes, int four) {
        for (size_t r = 0; r < sums.size(); ++r) {
            Temp q(*this, "q"), factors(*this, "factors");
            broadcast(q, ptr[element_at(int(r), 2 * four)]);
            broadcast(factors, ptr[element_at(int(r), 2 * four + 1)]);
            for (size_t b = 0; b < kVectors; ++b) {
                Temp words(*this, "words");
                vpmaddubsw(words, codes[b], q);
                if (key_.target->vnni) {
                    dot_words(sums[r][b], words, factors);
                    continue;
                }
                vpmaddwd(words, words, factors);
                vpaddd(sums[r][b], sums[r][b], words);
            }
        }
    }

    void emit_bytes(const std::vector<Rows>& sums, const Pair& codes, int four) {
        constexpr int kFours = TokenBytesForm::kOfFactor / 4;
        const int at = four / kFours * 2;
        for (size_t r = 0; r < sums[0].size(); ++r) {
            const Pair &sum = sums[0][r], &total = sums[1][r];
            if (four % kFours == 0) load_both(sum, starts_at(int(r), at));
            emit_dots(sum, codes, int(r), four);
            if (four % kFours != kFours - 1) continue;
            Temp factor(*this, "factor");
            broadcast(factor, ptr[starts_at(int(r), at + 1)]);
            for (size_t b = 0; b < kVectors; ++b) {
                vcvtdq2ps(sum[b], sum[b]);
                vfmadd231ps(total[b], sum[b], factor);
            }
        }
    }

    // The sums of all digits as numbers, in the place of the lowest.
    void emit_digits(const std::vector<Rows>& sums) {
        const size_t lowest = sums.size() - 1, joined = lowest + 1 - size_t(form_.chains);
        for (size_t r = 0; r < sums[0].size(); ++r)
            for (size_t b = 0; b < kVectors; ++b) {
                for (size_t digit = 1; digit <= joined; ++digit) {
                    const Vec &higher = sums[digit - 1][r][b], &sum = sums[digit][r][b];
                    vpslld(higher, higher, 8);
                    vpaddd(sum, sum, higher);
                }
                const Vec &high = sums[joined][r][b], &low = sums[lowest][r][b];
                vcvtdq2ps(low, low);
                if (form_.chains == 1) continue;
                vcvtdq2ps(high, high);
                vfmadd231ps(low, high, base_);
            }
    }

    void emit_scaled(const Rows& sums, int row) {
        for (size_t b = 0; b < kVectors; ++b) {
            Temp scale(*this, "scale");
            load_scale(scale, int(b));
            for (size_t r = 0; r < sums.size(); ++r) {
                const RegExp at = scores_at(row + int(r), int(b));
                vfmadd213ps(sums[r][b], scale, ptr[at]);
                vmovups(ptr[at], sums[r][b]);
            }
        }
    }

    void emit_factors(int row, int rows) {
        mov(starts_, ptr[args() + offsetof(QkArgs, factors)]);
        for (int r = row; r < row + rows; ++r) {
            Temp factor(*this, "factor");
            broadcast(factor, ptr[starts_ + r * 4]);
            for (int b = 0; b < kVectors; ++b) {
                Temp score(*this, "score");
                vmulps(score, factor, ptr[scores_at(r, b)]);
                vmovups(ptr[scores_at(r, b)], *score);
            }
        }
    }

    Vec base_;
};

bool is_wide(const Target& target) { return target.vnni && target.vector_bits == 512; }

}  // namespace

bool has_token_bytes(const quire_format& format, const Target& target, int digits) {
    if (!token_block_info(format.type)) return false;
    return digits == 1 || is_wide(target);
}

// A run is a group, or a part of one that fits a sum.
TokenBytesForm::TokenBytesForm(const RowKey& key)
    : dim(key.dim),
      digits(key.query_bytes()),
      zero(byte_zero(row_format(key.format))),
      is_nibbles(is_of_nibbles(row_format(key.format))),
      weighs_words(digits == 1 && !is_wide(*key.target)),
      largest(weighs_words && !is_nibbles ? kLargestOfWords : largest_digits(digits)) {
    constexpr int kMostRun = 128, kShortRun = 32;
    const int group = scale_group(key.format);
    run = group <= kMostRun && !(digits == 3 && is_nibbles) ? group : token_divisor(group, kShortRun);
    chains = digits == 3 && !is_nibbles ? 2 : 1;
    whole_groups = is_wide(*key.target) && run == group && run <= (digits == 1 ? kShortRun : kShortRun / 2);
    // run * largest * |code| * factor < 2^31
    largest_factor = is_nibbles ? kLargestFactor : kLargestFactor * 16 / std::max(16, run);
}

Status generate_token_qk_bytes(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenBytesForm(key).whole_groups ? generate_token_qk_groups(key, code)
                                            : TokenQkBytes(key).finish(code);
}

}  // namespace quire::jit
