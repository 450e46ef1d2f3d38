#include "jit/token_qk.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "jit/token_codes.h"
#include "jit/token_keys.h"
#include "jit/token_qk_amx.h"
#include "jit/token_qk_bytes.h"

namespace quire::jit {
namespace {

// The lanes are tokens: V vectors are the 16 of a block.
//
// for each block, or what rows of the cache are turned into:                         emit_turn
//   for each pass over R' of the query rows:                                         emit_pass
//     scores[r][16] = 0
//     for each group g, for each span of it: sum[r] = 0                              emit_group, emit_span
//       for each part of the span, for each dword of N elements:
//         prefetch a share of the next block
//         for r: sum[r] += query[r] * the dword's codes                              emit_chunk
//       scores[r] += sum[r] * scales[g][16]                                          emit_scaled
//     words: scores[r] *= factors[r]
//
// A part is what the code has once: the loops around it keep kernels small enough for a processor's cache of
// decoded instructions, beside the other kernels of a call. Parts keep prefetches apart, and spans the chains
// of float additions short.
//
// Words: pairs of elements are one dot product, in int32; |query| < 2^15, |code| < 2^7, so that sums of 256
// elements are below 2^30.
//
// Tops: codes as they are at the upper end of a dword, where that is one operation: of four bytes up to the
// code's own, in memory. The query is as much smaller (query_unit).
//
// live: sum[R' * V * C] + raw[V] + codes[V] + q + the products'; tops: for the products' what cuts them out,
// of turned keys no raw
class TokenQk : public Emitter {
public:
    explicit TokenQk(const RowKey& key)
        : Emitter(*key.target), key_(key), codes_(*this, key.format), vecs_(kBlockTokens / lanes()) {
        begin();
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        keys_->set();
        if (tops_) codes_.load_top(top_.emplace(*this, "top"));
        Label each_turn;
        L(each_turn);
        emit_turn();
        add(scores_, 4 * kBlockTokens);
        sub(count_, kBlockTokens);
        jnz(each_turn, T_NEAR);
        end();
    }

private:
    // Elements at most: of a part, and of a sum of products of words.
    static constexpr int kPart = 32, kSpan = 256;

    // The largest divisor of `size`, both multiples of 8, that is at most `most`.
    static int divisor(int size, int most) {
        int d = std::min(size, most);
        while (size % d != 0) d -= 8;
        return d;
    }
    int span() const { return divisor(group_size(), key_.words() ? kSpan : kPart); }
    int part() const { return divisor(span(), kPart); }
    int query_bytes() const { return key_.words() ? key_.query_words() * 2 : key_.padded() * 4; }
    int group_size() const { return scale_group(key_.format); }
    int element_bytes() const { return key_.words() ? 2 : 4; }
    RegExp scores_at(int row, int v) const { return scores_ + row * kBlock * 4 + v * vec_bytes(); }

    int rows_a_pass() const {
        int rows = key_.rows;
        while (rows * vecs_ + besides() > num_vecs()) rows = (rows + 1) / 2;
        return rows;
    }
    // Chains of additions: few rows take two each.
    int chains(int rows) const {
        return rows * vecs_ < 8 && 2 * rows * vecs_ + besides() <= num_vecs() ? 2 : 1;
    }
    int besides() const { return (in_memory_ ? 1 : 2) * vecs_ + 2; }

    void emit_turn() {
        keys_->begin_turn();
        for (int row = 0; row < key_.rows; row += rows_a_pass())
            emit_pass(row, std::min(rows_a_pass(), key_.rows - row));
        keys_->end_turn();
    }

    void emit_pass(int row, int rows) {
        stage("rows from " + std::to_string(row));
        {
            Temp none(*this, "none");
            zero(none);
            for (int r = 0; r < rows; ++r)
                for (int v = 0; v < vecs_; ++v) vmovups(ptr[scores_at(row + r, v)], *none);
        }
        keys_->codes(chunk_);
        keys_->scales(scales_);
        mov(element_, ptr[args() + offsetof(QkArgs, query)]);
        if (row != 0) add(element_, row * query_bytes());
        times(key_.groups(), "groups left", [&] {
            times(group_size() / span(), "spans left", [&] { emit_span(row, rows); });
            add(scales_, kBlockTokens * keys_->scale_bytes());
        });
        if (key_.words()) emit_factors(row, rows);
    }

    void emit_span(int row, int rows) {
        const std::vector<Vec> sums = vecs("sum", rows * vecs_ * chains(rows));
        const bool whole = part() == span();  // its first products start the sums
        for (const Vec& sum : sums)
            if (!whole) zero(sum);
        times(span() / part(), "parts left", [&] {
            const int chunks = part() / codes_.of_dword();
            for (int chunk = 0; chunk < chunks; ++chunk) {
                if (row == 0) keys_->ask(chunk, chunks);
                emit_chunk(sums, rows, chunk, whole && chunk == 0);
            }
            add(chunk_, part() / codes_.of_dword() * keys_->chunk_bytes());
            add(element_, part() * element_bytes());
        });
        emit_scaled(sums, row, rows);
        free(sums);
    }

    void emit_chunk(const std::vector<Vec>& sums, int rows, int chunk, bool first) {
        const std::vector<Vec> raw = vecs("raw", in_memory_ ? 0 : vecs_), code = vecs("code", vecs_);
        const RegExp dwords = chunk_ + chunk * keys_->chunk_bytes();
        for (size_t v = 0; v < raw.size(); ++v) vmovups(raw[v], ptr[dwords + int(v) * vec_bytes()]);
        const int parts = key_.words() ? codes_.pairs() : codes_.of_dword();
        for (int i = 0; i < parts; ++i) {
            for (int v = 0; v < vecs_; ++v) {
                // Parts begin with the first dwords of a block of the cache: nothing to read before those.
                if (tops_ && (in_memory_ || (chunk > 0 && codes_.ends_byte(i))))
                    emit_top(code[size_t(v)], dwords + v * vec_bytes(), i);
                else
                    emit_code(code[size_t(v)], raw[size_t(v)], i);
            }
            const int chain = i % chains(rows);
            for (int r = 0; r < rows; ++r) {
                Temp q(*this, "q");
                const int element = key_.words() ? chunk * parts + i : element_of_code(key_.format, chunk, i);
                broadcast(q, ptr[element_ + r * query_bytes() + element * 4]);
                for (int v = 0; v < vecs_; ++v)
                    emit_product(sums[size_t((r * vecs_ + v) * chains(rows) + chain)], code[size_t(v)], q,
                                 first && i < chains(rows));
            }
        }
        free(raw);
        free(code);
    }

    void emit_code(const Vec& code, const Vec& raw, int i) {
        if (key_.words()) return codes_.words(code, raw, i);
        tops_ ? codes_.top_number(code, *top_, raw, i) : codes_.number(code, raw, i);
    }
    void emit_top(const Vec& code, const RegExp& dwords, int i) {
        codes_.top_number(code, *top_, codes_.ends_byte(i) ? dwords : dwords + keys_->raised(), i);
    }

    void emit_product(const Vec& sum, const Vec& code, const Vec& q, bool first) {
        if (key_.words())
            first ? vpmaddwd(sum, code, q) : dot_words(sum, code, q);
        else
            first ? vmulps(sum, code, q) : vfmadd231ps(sum, code, q);
    }

    void emit_scaled(const std::vector<Vec>& sums, int row, int rows) {
        const std::vector<Vec> scale = vecs("scale", vecs_);
        for (int v = 0; v < vecs_; ++v)
            keys_->load_scales(scale[size_t(v)], scales_ + v * lanes() * keys_->scale_bytes());
        for (int r = 0; r < rows; ++r)
            for (int v = 0; v < vecs_; ++v) {
                const size_t i = size_t((r * vecs_ + v) * chains(rows));
                const Vec& sum = sums[i];
                if (chains(rows) == 2)
                    key_.words() ? vpaddd(sum, sum, sums[i + 1]) : vaddps(sum, sum, sums[i + 1]);
                if (key_.words()) vcvtdq2ps(sum, sum);
                vfmadd213ps(sum, scale[size_t(v)], ptr[scores_at(row + r, v)]);
                vmovups(ptr[scores_at(row + r, v)], sum);
            }
        free(scale);
    }

    void emit_factors(int row, int rows) {
        mov(element_, ptr[args() + offsetof(QkArgs, factors)]);
        for (int r = 0; r < rows; ++r) {
            Temp factor(*this, "factor");
            broadcast(factor, ptr[element_ + (row + r) * 4]);
            for (int v = 0; v < vecs_; ++v) {
                Temp score(*this, "score");
                vmulps(score, factor, ptr[scores_at(row + r, v)]);
                vmovups(ptr[scores_at(row + r, v)], *score);
            }
        }
    }

    const RowKey key_;
    const TokenCodes codes_;
    const int vecs_;                                                              // V
    const bool tops_ = takes_tops(key_), in_memory_ = tops_ && turns_keys(key_);  // all of them
    std::optional<Temp> top_;
    const Gpr scores_ = gpr("scores"), count_ = gpr("count"), chunk_ = gpr("codes of the group"),
              element_ = gpr("query elements"), scales_ = gpr("scales");
    const std::unique_ptr<TokenKeys> keys_ = TokenKeys::make(*this, key_, key_.dim / part());
};

}  // namespace

std::vector<int> token_word_order(const RowKey& key) {
    const int n = codes_of_dword(key.format);
    std::vector<int> order;
    for (int i = 0; i < key.dim; ++i)
        order.push_back(element_of_code(key.format, i / n, i % n / 2 + i % 2 * (n / 2)));
    order.resize(size_t(key.query_words()), -1);
    return order;
}

Status generate_token_qk(const RowKey& key, std::vector<uint8_t>* code) {
    if (takes_token_key_amx(key)) return generate_token_qk_amx(key, code);
    const bool of_bytes = key.products != Products::floats && !key.words();
    return of_bytes ? generate_token_qk_bytes(key, code) : TokenQk(key).finish(code);
}

}  // namespace quire::jit
