#include "jit/token_qk_turns.h"

namespace quire::jit {
namespace {

// As TokenQkBytes, but a group's codes are in registers, so that a query row's sums end before the next
// one's begin, and all rows' scores, which else are stored and loaded again with each group, stay there, too.
//
// In a pass: scores = 0                                                                    emit_pass
//   for each group: its codes as bytes from 0 on, scale[2]                                 emit_group
//     for r: prefetch a share of the next blocks
//            sums[2] = dot products of the query's digits and codes, in int32              emit_digits
//            (bytes: of eight elements each, times their factor                            emit_bytes)
//            scores[r] += float(sums) * scale
//   scores *= factors                                                                      store_scores
//
// live: scores[R' * 2] + codes[2 * parts * dwords] + scale[2] + sums[2 * chains], or sums and totals + q
class TokenQkGroups : public TokenQkTurns {
public:
    explicit TokenQkGroups(const RowKey& key) : TokenQkTurns(key, true) { generate(); }

    static constexpr int kBesides = 7;  // of registers, those that are not codes or scores

private:
    using Codes = std::vector<Pair>;  // [dword, part]

    int dwords() const { return scale_group(key_.format) / of_dword(); }
    int free_vecs() const { return num_vecs() - kVectors * parts() * dwords() - kBesides; }
    int rows_a_pass() const override { return rows_of(free_vecs() / kVectors); }

    void emit_kept() override { loader_->hold(free_vecs() - kVectors * rows_a_pass()); }

    void emit_pass(int row, int rows) override {
        std::vector<Pair> scores;
        for (int r = 0; r < rows; ++r) {
            scores.push_back(vecs("score", kVectors));
            zero_both(scores.back());
        }
        begin_pass(row);
        if (row == 0) prefetch_.ask(prefetch_.rest(blocks(), key_.groups()));
        times(key_.groups(), "groups left", [&] { emit_group(scores, row); });
        store_scores(scores, row);
    }

    void emit_group(const std::vector<Pair>& scores, int row) {
        Codes codes;
        for (int i = 0; i < dwords(); ++i)
            for (const Pair& of_part : load_codes(i)) codes.push_back(of_part);
        const Pair scale = vecs("scale", kVectors);
        for (int b = 0; b < kVectors; ++b) load_scale(scale[size_t(b)], b);
        const int rows = int(scores.size());
        for (int r = 0; r < rows; ++r) {
            if (row == 0) emit_asks(r, rows);
            form_.by_eights() ? emit_bytes(scores[size_t(r)], codes, scale, r)
                              : emit_digits(scores[size_t(r)], codes, scale, r);
        }
        for (const Pair& pair : codes) free(pair);
        free(scale);
        add(block_, dwords() * kBlockTokens * 4);
        add(element_, scale_group(key_.format) * form_.dwords());
        add(starts_,
            form_.by_eights() ? 8 * scale_group(key_.format) / TokenBytesForm::kOfFactor : 4 * form_.chains);
        add(scales_, kBlockTokens * 2);
    }

    void emit_asks(int r, int rows) {
        prefetch_.ask(prefetch_.share(blocks(), key_.groups()), r, rows);
        if (!prefetch_.asks_again()) return;
        for (int i = r * dwords() / rows; i < (r + 1) * dwords() / rows; ++i) ask_ahead(i);
    }

    // A chain of digits: the sum of those above is shifted, and where it begins is added with the last one.
    void emit_chain(const Pair& sums, const Codes& codes, int r, int first, int end, int start) {
        zero_both(sums);
        for (int digit = first; digit < end; ++digit) {
            for (const Vec& v : sums) {
                if (digit > first) vpslld(v, v, 8);
                if (digit + 1 == end) vpaddd(v, v, ptr_b[starts_at(r, start)]);
            }
            for (size_t four = 0; four < codes.size(); ++four)
                emit_dots(sums, codes[four], r, int(four) * form_.digits + digit);
        }
    }

    void emit_digits(const Pair& scores, const Codes& codes, const Pair& scale, int r) {
        const bool apart = form_.chains == 2;
        const Pair sums = vecs("sum", kVectors), low = vecs("low", apart ? kVectors : 0);
        emit_chain(sums, codes, r, 0, form_.digits - apart, 0);
        if (apart) emit_chain(low, codes, r, form_.digits - 1, form_.digits, 1);
        for (size_t b = 0; b < kVectors; ++b) {
            vcvtdq2ps(sums[b], sums[b]);
            if (apart) {
                vcvtdq2ps(low[b], low[b]);
                vfmadd132ps(sums[b], low[b], splat(256));
            }
            vfmadd231ps(scores[b], sums[b], scale[b]);
        }
        free(sums);
        free(low);
    }

    void emit_bytes(const Pair& scores, const Codes& codes, const Pair& scale, int r) {
        constexpr size_t kFours = TokenBytesForm::kOfFactor / 4;
        const Pair sums = vecs("sum", kVectors), totals = vecs("total", kVectors);
        for (size_t four = 0; four < codes.size(); four += kFours) {
            load_both(sums, starts_at(r, int(four / kFours * 2)));
            for (size_t i = four; i < four + kFours; ++i) emit_dots(sums, codes[i], r, int(i));
            for (size_t b = 0; b < kVectors; ++b) {
                const auto factor = ptr_b[starts_at(r, int(four / kFours * 2 + 1))];
                vcvtdq2ps(sums[b], sums[b]);
                four == 0 ? vmulps(totals[b], sums[b], factor) : vfmadd231ps(totals[b], sums[b], factor);
            }
        }
        for (size_t b = 0; b < kVectors; ++b) vfmadd231ps(scores[b], totals[b], scale[b]);
        free(sums);
        free(totals);
    }

    void store_scores(const std::vector<Pair>& scores, int row) {
        if (!form_.by_eights()) mov(starts_, ptr[args() + offsetof(QkArgs, factors)]);
        for (size_t r = 0; r < scores.size(); ++r) {
            for (int b = 0; b < kVectors; ++b) {
                const Vec& score = scores[r][size_t(b)];
                if (!form_.by_eights()) vmulps(score, score, ptr_b[starts_ + (row + int(r)) * 4]);
                vmovups(ptr[scores_at(row + int(r), b)], score);
            }
            free(scores[r]);
        }
    }
};

}  // namespace

Status generate_token_qk_groups(const RowKey& key, std::vector<uint8_t>* code) {
    return TokenQkGroups(key).finish(code);
}

}  // namespace quire::jit
