#include "jit/qk.h"

#include <cstddef>

#include "jit/qk_amx.h"
#include "jit/qk_fours.h"
#include "jit/qk_tiles.h"
#include "jit/qk_words.h"
#include "jit/row_loader.h"
#include "jit/scaled_amx.h"
#include "jit/token_codes.h"
#include "jit/token_keys.h"
#include "jit/token_qk.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

//   for each vector of the row:
//     k[t] = dequantised lanes of rows[key + t]             (row loader; later passes: what the first stored)
//     for r in 0..R: q = query[r] lanes; acc[r][t] += q * k[t]
//   where all elements of a key share a scale, k[t] are codes, and the scores are scaled
//
// live: acc[R' * T] + k[T] + one that is q or the loader's
class Qk : public QkTiles {
public:
    explicit Qk(const RowKey& key) : QkTiles(key), loader_(RowLoader::make(*this, key.format, key.dim)) {
        generate();
    }

private:
    // As many keys as the registers hold, so that a query vector that was loaded is used often and chains of
    // additions are many.
    int tile() const override { return tile_of(rows_a_pass()); }
    int tile_of(int rows) const {
        for (int t : {6, 4, 3, 2})
            if (rows * t + t + 1 <= num_vecs()) return t;
        return 1;
    }
    int parts() const override { return loader_->vecs(); }
    // A tile of one key would load a query vector for each product.
    bool fits(int rows) const override { return tile_of(rows) > 1; }

    void emit_products(const std::vector<Vec>& acc, int tokens, int vec, const Pass& pass) override {
        stage("products, vector " + std::to_string(vec));
        const std::vector<Vec> k = vecs("k", tokens);
        for (int t = 0; t < tokens; ++t) emit_key(k[size_t(t)], t, vec, pass);
        for (int r = 0; r < pass.rows; ++r) {
            Temp q(*this, "q");
            vmovups(q, ptr[query_ + ((pass.row + r) * key_.padded() + vec * lanes()) * 4]);
            for (int t = 0; t < tokens; ++t) vfmadd231ps(acc[size_t(r * tokens + t)], q, k[size_t(t)]);
        }
        free(k);
    }

    void emit_key(const Vec& k, int t, int vec, const Pass& pass) {
        const RegExp kept = numbers_ + (t * key_.padded() + vec * lanes()) * 4;
        if (pass.row > 0) return vmovups(k, ptr[kept]);
        key_.one_scale() ? loader_->load_codes(k, vec, row_[size_t(t)])
                         : loader_->load(k, vec, row_[size_t(t)], scales_of(t));
        if (pass.rows < key_.rows) vmovups(ptr[kept], k);
    }

    void emit_end() override {
        if (!key_.one_scale()) return;
        stage("scale the scores");
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        Label each;
        L(each);
        Temp scale(*this, "scale"), score(*this, "score");
        load_every_second(scale, scales_);
        inf_to_nan(scale);
        for (int r = 0; r < key_.rows; ++r) {
            vmulps(score, scale, ptr[scores_ + r * kBlock * 4]);
            vmovups(ptr[scores_ + r * kBlock * 4], *score);
        }
        add(scores_, vec_bytes());
        add(scales_, 2 * vec_bytes());
        sub(count_, lanes());
        jnz(each, T_NEAR);
    }

    void emit_factors(const Xbyak::Xmm&, int, int) override {}

    static_assert(kKeyPadding % 16 == 0);
    const std::unique_ptr<RowLoader> loader_;
};

}  // namespace

std::vector<int> query_word_order(const RowKey& key) {
    const bool tokens = token_block_info(key.format.type) || turns_keys(key);
    return tokens ? token_word_order(key) : word_order(key.format, key.dim, key.target->lanes());
}

float query_unit(const RowKey& key) { return takes_tops(key) ? top_unit(key.format) : 1.f; }

Status generate_qk(const RowKey& key, std::vector<uint8_t>* code) {
    if (key.scales_tiles()) return generate_qk_scaled_amx(key, code);
    if (takes_key_amx(key)) return generate_qk_amx(key, code);
    if (takes_fours(key)) return generate_qk_fours(key, code);
    if (turns_keys(key)) return generate_token_qk(key, code);
    return key.words() ? generate_qk_words(key, code) : Qk(key).finish(code);
}

}  // namespace quire::jit
