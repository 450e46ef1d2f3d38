#include "jit/token_pv.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "jit/token_codes.h"
#include "jit/token_keys.h"
#include "jit/token_prefetch.h"
#include "jit/token_weights.h"
#include "jit/weights_bytes.h"

namespace quire::jit {
namespace {

// The lanes are elements. For each pass over W vectors of them:                       emit_pass
//   acc[r][w] = output[r][w] * rescale[r]; words, bytes: 0                            emit_begin
//   for each block:                                                                   emit_block
//     prefetch the pass's share of the next block
//     for each dword of N tokens, for r: acc[r][w] += weights[r][group of w] * codes  emit_tokens
//       where weights do not hold the scales: probabilities[r] * (codes * scales[group of w])
//       bytes: (weights * even tokens' codes + weights * odd ones') * the run's factor  emit_token_bytes
//   output[r][w] = acc[r][w]; words, bytes: output * rescale + float(acc) * factors   emit_end
//
// Words: a dot product is of two tokens. |weight| < 2^15, |code| < 2^7, kBlock tokens: below 2^29.
//
// Tops: as QK's, and output * rescale + acc * top_unit() in the end.
//
// live: acc[R * W] + raw[W] + codes[W] + weight, or scale + the products' + the codes'; bytes: codes[2 * W] +
// two of weights, and where they serve several vectors two of products
class TokenPv : public Emitter {
public:
    explicit TokenPv(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          codes_(*this, key.format),
          prefetch_(*this, key),
          bytes_form_(key),
          sums_(key.words() || key.bytes()),
          folds_(token_weights_fold(key)),
          bytes_(key.bytes()   ? ValueBytes::kTurnBytes / ValueBytes::kTurn
                 : key.words() ? 2
                               : 4) {
        begin();
        mov(output_, ptr[args() + offsetof(PvArgs, output)]);
        mov(rescale_, ptr[args() + offsetof(PvArgs, rescale)]);
        hold_upper_half();
        if (tops_) codes_.load_top(top_.emplace(*this, "top"));
        const int parts = (key_.rows + most_rows() - 1) / most_rows();
        for (int part = 0, row = 0; part < parts; ++part) {
            const int rows = (key_.rows - row + parts - part - 1) / (parts - part);
            emit_rows(row, rows);
            row += rows;
        }
        end();
    }

private:
    static constexpr int kBlocks = kBlock / kBlockTokens;
    static constexpr int kOfBytes = 4;

    struct Pass {
        int row, rows, vec, width;
    };

    // Beside the sums: two of codes, and two of weights and products.
    int most_rows() const { return num_vecs() - 4; }

    // Of part of the query rows, all passes.
    void emit_rows(int row, int rows) {
        const int besides = key_.bytes() ? kOfBytes : 2;  // tops: the weights', or a scale's, and `top`
        const int most = std::clamp((num_vecs() - besides) / (rows + 2), 1, 8);
        const int passes = (key_.vecs() + most - 1) / most;
        const int widest = (key_.vecs() + passes - 1) / passes;
        if (!sums_) codes_.hold(widest * (rows + 2) + 2);
        for (int i = 0, done = 0; i < passes; ++i) {
            const int left = passes - i, width = (key_.vecs() - done + left - 1) / left;
            emit_pass({row, rows, done, width}, i, passes);
            done += width;
        }
    }

    RegExp output_at(int row, int vec) const { return output_ + (row * key_.padded() + vec * lanes()) * 4; }
    // Of the elements of half a vector; padding repeats the last.
    int group_of(int vec, int half) const {
        const int element = vec * lanes() + half * lanes() / 2;
        return std::min(element, key_.dim - 1) / scale_group(key_.format);
    }
    RegExp weights_at(int row, int group, int token) const {
        return weights_ + ((row * (folds_ ? key_.groups() : 1) + group) * kBlock + token) * bytes_;
    }
    RegExp scales_at(int group, int token) const { return scales_ + (group * kBlockTokens + token) * 4; }

    void emit_pass(const Pass& pass, int index, int passes) {
        const int vec = pass.vec, width = pass.width;
        stage("pass from row " + std::to_string(pass.row) + ", vector " + std::to_string(vec));
        const std::vector<Vec> acc = vecs("acc", pass.rows * width);
        emit_begin(acc, pass);
        mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
        if (!folds_) mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
        mov(blocks_, ptr[args() + offsetof(PvArgs, rows)]);
        // The pass's share of the next blocks, a part of one with each block; the first rows have asked.
        const int first = kBlocks * index / passes;
        const int ahead = pass.row > 0 ? 0 : kBlocks * (index + 1) / passes - first;
        const int parts = ahead > 0 ? (kBlocks + ahead - 1) / ahead : 1;
        if (ahead > 0) prefetch_.set(args() + offsetof(PvArgs, next), first, parts);
        mov(count_, ptr[args() + offsetof(PvArgs, count)]);
        Label each_block;
        L(each_block);
        if (ahead > 0) prefetch_.ask(prefetch_.part_lines(parts));
        mov(block_, ptr[blocks_]);
        if (prefetch_.asks_again()) prefetch_.look_ahead(blocks_, count_, block_);
        mov(dwords_, kBlockTokens / codes_.of_dword());
        Label each_dword;  // a loop keeps the code small (jit/token_qk.cc)
        L(each_dword);
        if (prefetch_.asks_again()) {
            const RegExp block = prefetch_.ahead(block_);
            for (int w = 0; w < width; ++w) prefetcht0(ptr[block + (vec + w) * lanes() * 4]);
        }
        key_.bytes() ? emit_token_bytes(acc, pass) : emit_tokens(acc, pass);
        add(block_, key_.dim * 4);
        add(weights_, codes_.of_dword() * bytes_);
        if (!folds_) add(scales_, codes_.of_dword() * 4);
        dec(dwords_);
        jnz(each_dword, T_NEAR);
        if (!folds_) add(scales_, (key_.groups() - 1) * kBlockTokens * 4);
        add(blocks_, 8 * kBlockTokens);
        sub(count_, kBlockTokens);
        jnz(each_block, T_NEAR);
        emit_end(acc, pass);
        free(acc);
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) {
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
    void emit_tokens(const std::vector<Vec>& acc, const Pass& pass) {
        const int vec = pass.vec, width = pass.width;
        const std::vector<Vec> raw = vecs("raw", width), code = vecs("code", width);
        const int n = codes_.of_dword();
        for (int w = 0; w < width; ++w)
            load_raw(raw[size_t(w)], block_ + (vec + w) * lanes() * 4,
                     4 * std::min(lanes(), key_.dim - (vec + w) * lanes()));
        const int step = key_.words() ? 2 : 1;
        for (int t = 0; t < n; t += step) {
            const int place = token_block_info(key_.format.type)->value_place(t);
            for (int w = 0; w < width; ++w) emit_code(code[size_t(w)], raw[size_t(w)], vec + w, place);
            if (!folds_) emit_scaled(code, vec, t);
            for (int r = 0; r < pass.rows; ++r)
                emit_products(&acc[size_t(r * width)], code, vec, pass.row + r, t);
        }
        free(raw);
        free(code);
    }

    // Before the first dword of a block there is nothing to be read.
    void emit_code(const Vec& code, const Vec& raw, int vec, int place) {
        if (key_.words()) return codes_.words(code, raw, place);
        if (!tops_) return codes_.number(code, raw, place);
        vec > 0 && codes_.ends_byte(place) ? codes_.top_number(code, *top_, block_ + vec * lanes() * 4, place)
                                           : codes_.top_number(code, *top_, raw, place);
    }

    // Whether vector `vec` + w has the groups of the one before.
    bool same_groups(int vec, int w) const {
        return w > 0 && group_of(vec + w, 0) == group_of(vec + w - 1, 0) &&
               group_of(vec + w, 1) == group_of(vec + w - 1, 1);
    }

    void emit_scaled(const std::vector<Vec>& code, int vec, int token) {
        Temp scale(*this, "scale");
        for (int w = 0; w < int(code.size()); ++w) {
            const int low = group_of(vec + w, 0), high = group_of(vec + w, 1);
            if (!same_groups(vec, w))
                broadcast_halves(scale, scales_at(low, token), scales_at(high, token), low == high);
            vmulps(code[size_t(w)], code[size_t(w)], scale);
        }
    }

    void emit_products(const Vec* acc, const std::vector<Vec>& code, int vec, int row, int token) {
        Temp weight(*this, "weight");
        if (!folds_) broadcast(weight, ptr[weights_at(row, 0, token)]);
        for (int w = 0; w < int(code.size()); ++w) {
            const int low = group_of(vec + w, 0), high = group_of(vec + w, 1);
            if (folds_ && !same_groups(vec, w))
                broadcast_halves(weight, weights_at(row, low, token), weights_at(row, high, token),
                                 low == high);
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

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) {
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

    const RowKey key_;
    const TokenCodes codes_;
    const bool tops_ = takes_tops(key_);
    std::optional<Temp> top_;
    TokenPrefetch prefetch_;
    const ValueBytes bytes_form_;
    const bool sums_;  // integers
    const bool folds_;
    const int bytes_;  // of a weight
    const Gpr output_ = gpr("output"), rescale_ = gpr("rescale"), weights_ = gpr("weights"),
              blocks_ = gpr("blocks"), count_ = gpr("count"), block_ = gpr("block"),
              dwords_ = gpr("dwords left"), scales_ = gpr("scales");
};

}  // namespace

Status generate_token_pv(const RowKey& key, std::vector<uint8_t>* code) { return TokenPv(key).finish(code); }

}  // namespace quire::jit
