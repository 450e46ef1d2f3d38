#include "jit/token_pv.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "jit/token_keys.h"
#include "jit/token_pv_amx.h"
#include "jit/token_pv_passes.h"
#include "jit/token_pv_runs.h"
#include "jit/token_weights.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/weights_runs.h"

namespace quire::jit {
namespace {

// acc[r][w] = output[r][w] * rescale[r]; words, bytes: 0                                emit_begin
// for each dword of N tokens, for r: acc[r][w] += weights[r][group of w] * codes        emit_tokens
//   where weights do not hold the scales: probabilities[r] * (codes * scales[group of w])
//   bytes: (weights * even tokens' codes + weights * odd ones') * the run's factor      emit_token_bytes
// output[r][w] = acc[r][w]; words, bytes: output * rescale + float(acc) * factors       emit_end
//
// Words: a dot product is of two tokens. |weight| < 2^15, |code| < 2^7, kBlock tokens: below 2^29. Scaled
// words: probabilities[r] * (codes * scales[group of w]), |p| < 2^12, |v| < 2^12.
//
// Tops: as QK's, and output * rescale + acc * top_unit() in the end.
//
// live: acc[R * W] + raw[W] + codes[W] + weight, or scale + the products' + the codes'; bytes: codes[2 * W] +
// two of weights, and where they serve several vectors two of products
class TokenPv : public TokenPvPasses {
public:
    explicit TokenPv(const RowKey& key)
        : TokenPvPasses(key),
          bytes_form_(key),
          scaled_form_(key),
          words_form_(key),
          sums_(key.words() || key.bytes()),
          folds_(token_weights_fold(key)),
          bytes_(key.bytes()   ? ValueBytes::kTurnBytes / ValueBytes::kTurn
                 : key.words() ? 2
                               : 4) {
        generate();
    }

private:
    static constexpr int kOfBytes = 4;

    void emit_kept() override {
        if (tops_) codes_.load_top(top_.emplace(*this, "top"));
    }
    // Beside the sums: two of codes, and two of weights and products.
    int most_rows() const override { return num_vecs() - 4; }
    int widest(int rows) const override {
        const int besides = key_.bytes() ? kOfBytes : 2;  // tops: the weights', or a scale's, and `top`
        return std::clamp((num_vecs() - besides) / (rows + 2), 1, 8);
    }
    void hold(int rows, int width) override {
        const int of_pass = width * (rows + 2);
        if (!sums_) codes_.hold(of_pass + 2);
        for (int vec = 0; vec < key_.vecs(); ++vec)
            if (takes_turns(vec)) hold_lanes(TokenWords::lanes(), of_pass + 2);
    }
    // Elements of two groups, whose words' weights lie side by side.
    bool takes_turns(int vec) const { return key_.words() && group_of(vec, 0) != group_of(vec, 1); }
    void load_weights(const Vec& v, int vec, const RegExp& low, const RegExp& high) {
        if (takes_turns(vec)) return vpbroadcastq(v, ptr[low]);
        broadcast_halves(v, low, high, group_of(vec, 0) == group_of(vec, 1));
    }
    // Words' weights of a dword's tokens are those of so many fours of them.
    int weights_step() const override {
        return key_.products == Products::words ? codes_.of_dword() / 4 * 16 : codes_.of_dword() * bytes_;
    }
    int weights_of_block() const override {
        return key_.products == Products::words ? words_form_.block_bytes() : kBlockTokens * bytes_;
    }
    bool takes_scales() const override { return scales(); }
    size_t scales_arg() const override {
        return key_.scales_words() ? offsetof(PvArgs, probabilities) : offsetof(PvArgs, scales);
    }
    int scales_of_block() const override {
        return key_.scales_words() ? words_form_.block_bytes() : key_.groups() * kBlockTokens * 4;
    }

    RegExp weights_at(int row, int group, int token) const {
        if (key_.scales_words()) return weights_ + row * ScaledWords::kRowBytes + token * bytes_;
        if (key_.words()) return weights_ + row * words_form_.row_bytes() + TokenWords::at(group, token);
        const int of_row = weight_row_bytes((folds_ ? key_.groups() : 1) * bytes_, folds_);
        return weights_ + row * of_row + (group * kBlock + token) * bytes_;
    }
    // Whether values are scaled themselves.
    bool scales() const { return !folds_ || key_.scales_words(); }
    RegExp scales_at(int group, int token) const {
        if (key_.scales_words()) return scales_ + scaled_form_.scales_at() + TokenWords::at(group, token);
        return scales_ + (group * kBlockTokens + token) * 4;
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int r = 0; r < pass.rows; ++r) {
            Temp rescale(*this, "rescale");
            const bool rescales = !sums_ && !tops_;
            if (rescales) broadcast(rescale, ptr[rescale_ + (pass.row + r) * 4]);
            for (int w = 0; w < pass.width; ++w) {
                const Vec& sum = acc[size_t(r * pass.width + w)];
                !rescales ? zero(sum) : vmulps(sum, rescale, ptr[output_at(pass.row + r, pass.vec + w)]);
            }
        }
    }

    // The next N tokens of the block.
    void emit_tokens(const std::vector<Vec>& acc, const Pass& pass) override {
        if (key_.bytes()) return emit_token_bytes(acc, pass);
        const int vec = pass.vec, width = pass.width;
        const std::vector<Vec> raw = vecs("raw", width), code = vecs("code", width);
        const int n = codes_.of_dword();
        for (int w = 0; w < width; ++w) {
            const RegExp at = block_ + (vec + w) * lanes() * 4;
            takes_turns(vec + w)
                ? load_lanes(raw[size_t(w)], at, TokenWords::lanes())
                : load_raw(raw[size_t(w)], at, 4 * std::min(lanes(), key_.dim - (vec + w) * lanes()));
        }
        const int step = key_.words() ? 2 : 1;
        for (int t = 0; t < n; t += step) {
            const int place = token_block_info(key_.format.type)->value_place(t);
            for (int w = 0; w < width; ++w) emit_code(code[size_t(w)], raw[size_t(w)], vec + w, place);
            if (scales()) emit_scaled(code, vec, t);
            for (int r = 0; r < pass.rows; ++r)
                emit_products(&acc[size_t(r * width)], code, vec, pass.row + r, t);
        }
        free(raw);
        free(code);
    }

    // Before the first dword of a block there is nothing to be read.
    void emit_code(const Vec& code, const Vec& raw, int vec, int place) {
        if (key_.scales_words()) return codes_.top_words(code, raw, place);
        if (key_.words()) return codes_.words(code, raw, place);
        if (!tops_) return codes_.number(code, raw, place);
        vec > 0 && codes_.ends_byte(place) ? codes_.top_number(code, *top_, block_ + vec * lanes() * 4, place)
                                           : codes_.top_number(code, *top_, raw, place);
    }

    void emit_scaled(const std::vector<Vec>& code, int vec, int token) {
        Temp scale(*this, "scale");
        for (int w = 0; w < int(code.size()); ++w) {
            const int low = group_of(vec + w, 0), high = group_of(vec + w, 1);
            if (!same_groups(vec, w))
                load_weights(scale, vec + w, scales_at(low, token), scales_at(high, token));
            const Vec& c = code[size_t(w)];
            key_.scales_words() ? vpmulhrsw(c, c, scale) : vmulps(c, c, scale);
        }
    }

    void emit_products(const Vec* acc, const std::vector<Vec>& code, int vec, int row, int token) {
        Temp weight(*this, "weight");
        if (scales()) broadcast(weight, ptr[weights_at(row, 0, token)]);
        for (int w = 0; w < int(code.size()); ++w) {
            const int low = group_of(vec + w, 0), high = group_of(vec + w, 1);
            if (!scales() && !same_groups(vec, w))
                load_weights(weight, vec + w, weights_at(row, low, token), weights_at(row, high, token));
            key_.words() ? dot_words(acc[w], code[size_t(w)], weight)
                         : vfmadd231ps(acc[w], code[size_t(w)], weight);
        }
    }

    // The next eight: low nibbles of four of them, then high ones, as the weights are ordered.
    void emit_token_bytes(const std::vector<Vec>& acc, const Pass& pass) {
        const int vec = pass.vec, width = pass.width;
        const std::vector<Vec> code = vecs("codes", 2 * width);
        for (int w = 0; w < width; ++w)
            load_nibble_bytes(code[size_t(2 * w)], code[size_t(2 * w + 1)], block_ + (vec + w) * lanes() * 4);
        for (int r = 0; r < pass.rows; ++r) {
            const std::vector<Vec> temps = vecs("weights, sums", width == 1 ? 2 : kOfBytes);
            const Vec &low = temps[0], &high = temps[1], &sum = temps[temps.size() - 2],
                      &other = temps.back();
            for (int w = 0; w < width; ++w) {
                const int group = group_of(vec + w, 0);
                const RegExp weights = weights_ +
                                       bytes_form_.weights_at(pass.row + r, group / ValueBytes::kSet) +
                                       group % ValueBytes::kSet * 4;
                if (!same_groups(vec, w)) {
                    broadcast(low, ptr[weights]);
                    broadcast(high, ptr[weights + ValueBytes::kSet * 4]);
                }
                vpmaddubsw(sum, low, code[size_t(2 * w)]);
                vpmaddubsw(other, high, code[size_t(2 * w + 1)]);
                vpaddw(sum, sum, other);
                vpmaddwd(sum, sum, ptr[weights_ + bytes_form_.runs_at(pass.row + r, 0)]);
                vpaddd(acc[size_t(r * width + w)], acc[size_t(r * width + w)], sum);
            }
            free(temps);
        }
        free(code);
    }

    RegExp factor_at(const Gpr& factors, int row, int group) const {
        if (!key_.bytes()) return factors + (row * key_.groups() + group) * 4;
        return factors + bytes_form_.factor_at(row, group / ValueBytes::kSet) + group % ValueBytes::kSet * 4;
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        const Gpr factors = gpr("factors");
        if (sums_) mov(factors, ptr[args() + offsetof(PvArgs, scales)]);
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w) {
                const Vec& sum = acc[size_t(r * pass.width + w)];
                const int row = pass.row + r, vec = pass.vec + w;
                if (tops_) emit_output(sum, row, vec);
                if (sums_) {
                    Temp factor(*this, "factor");
                    const int low = group_of(vec, 0), high = group_of(vec, 1);
                    broadcast_halves(factor, factor_at(factors, row, low), factor_at(factors, row, high),
                                     low == high);
                    if (takes_turns(vec)) permute(sum, TokenWords::elements());
                    vcvtdq2ps(sum, sum);
                    vmulps(sum, sum, factor);
                    broadcast(factor, ptr[rescale_ + row * 4]);
                    vfmadd231ps(sum, factor, ptr[output_at(row, vec)]);
                }
                vmovups(ptr[output_at(row, vec)], sum);
            }
        free(factors);
    }

    // output * rescale + sum, of tops.
    void emit_output(const Vec& sum, int row, int vec) {
        Temp output(*this, "output");
        broadcast(output, ptr[rescale_ + row * 4]);
        vmulps(output, output, ptr[output_at(row, vec)]);
        vfmadd132ps(sum, output, splat(top_unit(key_.format)));
    }

    const bool tops_ = takes_tops(key_);
    std::optional<Temp> top_;
    const ValueBytes bytes_form_;
    const ScaledWords scaled_form_;
    const TokenWords words_form_;
    const bool sums_;  // integers
    const bool folds_;
    const int bytes_;  // of a weight
};

// acc[r][w][digit] = the starts                                                          emit_begin
// for each four tokens of a dword, for r, digit: acc[r][w][digit] += codes * weights' digit  emit_tokens
// output[r][w] = output * rescale + (acc[0] + 256 acc[1] + 65536 acc[2]) * kUnit * factor emit_end
//
// As jit/pv_fours.cc; a vector has elements of one group.
//
// live: acc[R * W * 3] + codes[W * fours] + a weight
class TokenPvFours : public TokenPvPasses {
public:
    explicit TokenPvFours(const RowKey& key) : TokenPvPasses(key), form_(key) { generate(); }

private:
    static constexpr int kBesides = 3, kMostRows = 4;  // more would leave a vector for each load of a weight

    int most_rows() const override { return kMostRows; }
    int widest(int rows) const override {
        return std::clamp((num_vecs() - kBesides) / (rows * sums() + fours()), 1, 8);
    }
    int sums() const override { return ValueFours::kDigits; }
    int fours() const { return codes_.of_dword() / 4; }
    int dwords_a_turn() const override { return kBlockTokens / codes_.of_dword(); }
    int weights_step() const override { return kBlockTokens / 4 * ValueFours::kFourBytes; }
    bool asks_within() const override { return true; }
    const Vec& sum(const std::vector<Vec>& acc, const Pass& pass, int r, int w, int digit) const {
        return acc[size_t((r * pass.width + w) * sums() + digit)];
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w)
                broadcast_each(&sum(acc, pass, r, w, 0), sums(),
                               weights_ + form_.start_at(group_of(pass.vec + w, 0), pass.row + r));
    }

    void emit_tokens(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int i = 0; i < dwords_a_turn(); ++i) emit_dword(acc, pass, i);
    }

    void emit_dword(const std::vector<Vec>& acc, const Pass& pass, int i) {
        const std::vector<Vec> v = vecs("codes", pass.width * fours());
        const int parts = dwords_a_turn() * fours() * pass.rows;
        for (int w = 0; w < pass.width; ++w) emit_codes(&v[size_t(w * fours())], i, pass.vec + w);
        for (int four = 0; four < fours(); ++four)
            for (int r = 0; r < pass.rows; ++r) {
                emit_asks(pass, (i * fours() + four) * pass.rows + r, parts);
                for (int digit = 0; digit < sums(); ++digit) {
                    Temp weight(*this, "weight");
                    for (int w = 0; w < pass.width; ++w) {
                        const int group = group_of(pass.vec + w, 0);
                        if (!same_groups(pass.vec, w))
                            broadcast(weight, ptr[weights_ + form_.weights_at(group, pass.row + r) +
                                                  (i * fours() + four) * ValueFours::kFourBytes + digit * 4]);
                        dot_bytes(sum(acc, pass, r, w, digit), v[size_t(w * fours() + four)], *weight);
                    }
                }
            }
        free(v);
    }

    // Unsigned ones of a vector of dwords. Codes of four bits: v[0] has the low nibbles, v[1] the high ones.
    void emit_codes(const Vec* v, int i, int vec) {
        vmovups(v[0], ptr[block_ + i * key_.dim * 4 + vec * lanes() * 4]);
        if (fours() == 1) return vpxord(v[0], v[0], splat_bits(0x80808080));
        vpxord(v[0], v[0], splat_bits(0x88888888));
        vpsrlw(v[1], v[0], 4);
        for (const Vec* half : {&v[0], &v[1]}) vpandd(*half, *half, splat_bits(0x0f0f0f0f));
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w) {
                Temp factor(*this, "factor");
                const Vec& number = sum_of_digits(&sum(acc, pass, r, w, 0), ValueFours::kDigits);
                vmulps(number, number, splat(ValueFours::kUnit));
                broadcast(factor, ptr[scales_ + form_.factor_at(group_of(pass.vec + w, 0), pass.row + r)]);
                vmulps(number, number, factor);
                broadcast(factor, ptr[rescale_ + (pass.row + r) * 4]);
                vfmadd231ps(number, factor, ptr[output_at(pass.row + r, pass.vec + w)]);
                vmovups(ptr[output_at(pass.row + r, pass.vec + w)], number);
            }
    }

    const ValueFours form_;
};

}  // namespace

Status generate_token_pv(const RowKey& key, std::vector<uint8_t>* code) {
    if (takes_value_amx(key)) return generate_token_pv_amx(key, code);
    if (key.bytes() && has_value_runs(key)) return generate_token_pv_runs(key, code);
    return key.products == Products::three_bytes ? TokenPvFours(key).finish(code) : TokenPv(key).finish(code);
}

}  // namespace quire::jit
