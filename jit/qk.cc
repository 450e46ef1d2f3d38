#include "jit/qk.h"

#include <algorithm>
#include <cstddef>

#include "jit/qk_bytes.h"
#include "jit/qk_tiles.h"
#include "jit/row_loader.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

// for key in 0..count step T:                             emit_rows
//   for g in 0..D/G: out[key + t][g] = float(rows[key + t][g])        of blocks: {d, m} or d of block g
//
// As many rows T as fit one vector, or one row of several; what a store writes beyond is written again.
class Scales : public Emitter {
public:
    explicit Scales(const RowKey& key)
        : Emitter(*key.target), key_(key), block_(block_info(key.format.type)) {
        begin();
        for (int i = 0; i < kUnroll; ++i) row_.push_back(gpr("row " + std::to_string(i)));
        mov(rows_, ptr[args() + offsetof(ScalesArgs, rows)]);
        mov(out_, ptr[args() + offsetof(ScalesArgs, out)]);
        mov(count_, ptr[args() + offsetof(ScalesArgs, count)]);
        const int together = rows_together();
        Label each_turn;
        L(each_turn);
        for (int i = 0; i < kUnroll; ++i) mov(row_[size_t(i)], ptr[rows_ + 8 * i]);
        for (int i = 0; i < kUnroll; i += together) together > 1 ? emit_rows(i, together) : emit_row(i);
        add(rows_, 8 * kUnroll);
        add(out_, key_.scales_stride() * 4 * kUnroll);
        sub(count_, kUnroll);
        jnz(each_turn, T_NEAR);
        end();
    }

private:
    static constexpr int kUnroll = 4;

    RegExp out_at(int row, int group) const {
        return out_ + (row * key_.scales_stride() + group * key_.numbers()) * 4;
    }

    int rows_together() const {
        const int numbers = key_.groups() * key_.numbers();
        if (numbers != key_.scales_stride()) return 1;
        if (!block_ && (key_.format.scale_type != QUIRE_F16 || numbers > 4)) return 1;
        int rows = kUnroll;
        while (rows > 1 && rows * numbers > lanes()) rows /= 2;
        return rows;
    }

    void emit_rows(int first, int count) {
        stage("rows from " + std::to_string(first));
        std::vector<RegExp> at;
        for (int i = first; i < first + count; ++i)
            for (int g = 0; g < (block_ ? key_.groups() : 1); ++g) at.push_back(halves_at(i, g));
        Temp factors(*this, "factors");
        load_halves(factors, at, block_ ? block_->numbers() : key_.groups());
        store(first, 0, factors);
    }

    void emit_row(int i) {
        stage("row " + std::to_string(i));
        const int step = lanes() / key_.numbers();
        for (int g = 0; g < key_.groups(); g += step) {
            Temp factors(*this, "factors");
            emit_load(factors, i, g, std::min(step, key_.groups() - g));
            store(i, g, factors);
        }
    }

    void store(int row, int group, const Vec& factors) {
        if (key_.products != Products::floats) inf_to_nan(factors);
        vmovups(ptr[out_at(row, group)], factors);
    }

    void emit_load(const Vec& factors, int i, int group, int count) {
        if (!block_) return load_number(key_.format.scale_type, factors, halves_at(i, group), count);
        std::vector<RegExp> at;
        for (int g = group; g < group + count; ++g) at.push_back(halves_at(i, g));
        load_halves(factors, at, block_->numbers());
    }

    RegExp halves_at(int i, int group) const {
        return row_[size_t(i)] + group * (block_ ? block_->bytes : type_bits(key_.format.scale_type) / 8);
    }

    const RowKey key_;
    const BlockInfo* const block_;
    const Gpr rows_ = gpr("rows"), out_ = gpr("out"), count_ = gpr("count");
    std::vector<Gpr> row_;
};

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

//   for each chunk of the row: a, b = its words                               (word loader)
//     for r in 0..R: sum = query[r].a * a + query[r].b * b, in int32           emit_dots
//                    acc[r][t] += float(sum) * scale of the lane's group       emit_scaled
//
// A group of several chunks adds them up in int32 first. |query| < 2^15, |code| <= 2^7, and a lane adds up at
// most D / L elements: 2^22 * 1024 / 8 < 2^31.
//
// live: acc[R * T] + a, b, the scale, the products', and sum (R * T where a group has several chunks)
class QkWords : public QkTiles {
public:
    explicit QkWords(const RowKey& key)
        : QkTiles(key), loader_(WordLoader::make(*this, key.format, key.dim)) {
        generate();
    }

private:
    bool fit(int rows, int tokens, bool several_sums) const {
        return rows * tokens + 4 + (several_sums ? rows * tokens : 1) <= num_vecs();
    }
    bool fits(int rows) const override { return fit(rows, 1, false); }
    int tile() const override {
        bool several = false;  // groups that are no multiple of a chunk may go on anywhere
        for (int chunk = 0; chunk < parts(); ++chunk) several = several || goes_on(chunk);
        for (int t : {4, 2})
            if (fit(rows_a_pass(), t, several)) return t;
        return 1;
    }
    int parts() const override { return loader_->chunks(); }

    // Whether all lanes of this chunk and the next are of one group, and there are registers for its sums.
    bool goes_on(int chunk) const {
        if (chunk < 0 || chunk + 1 >= parts() || !fit(rows_a_pass(), 1, true)) return false;
        return loader_->key_groups(chunk).front() == loader_->key_groups(chunk + 1).back();
    }

    void emit_products(const std::vector<Vec>& acc, int tokens, int chunk, const Pass& pass) override {
        stage("products, chunk " + std::to_string(chunk));
        if (goes_on(chunk) && !goes_on(chunk - 1)) sums_ = vecs("sum", pass.rows * tokens);
        for (int t = 0; t < tokens; ++t) emit_token(acc, tokens, chunk, t, pass);
        if (goes_on(chunk - 1) && !goes_on(chunk)) {
            free(sums_);
            sums_.clear();
        }
    }

    void emit_token(const std::vector<Vec>& acc, int tokens, int chunk, int t, const Pass& pass) {
        const bool first = !goes_on(chunk - 1), last = !goes_on(chunk);
        Temp a(*this, "a"), b(*this, "b");
        loader_->load_keys(a, b, chunk, row_[size_t(t)]);
        Temp scale(*this, "scale");
        if (last) load_lanes(scale, scales_of(t), loader_->key_groups(chunk));
        for (int r = 0; r < pass.rows; ++r) {
            const size_t i = size_t(r * tokens + t);
            if (!sums_.empty()) {
                emit_dots(sums_[i], a, b, pass.row + r, chunk, first);
                if (last) emit_scaled(acc[i], sums_[i], scale);
            } else {
                Temp sum(*this, "sum");
                emit_dots(sum, a, b, pass.row + r, chunk, true);
                emit_scaled(acc[i], sum, scale);
            }
        }
    }

    void emit_dots(const Vec& sum, const Vec& a, const Vec& b, int r, int chunk, bool first) {
        const RegExp query = query_ + (r * key_.query_words() + chunk * 4 * lanes()) * 2;
        first ? vpmaddwd(sum, a, ptr[query]) : dot_words(sum, a, ptr[query]);
        dot_words(sum, b, ptr[query + 4 * lanes()]);
    }

    void emit_scaled(const Vec& acc, const Vec& sum, const Vec& scale) {
        vcvtdq2ps(sum, sum);
        vfmadd231ps(acc, sum, scale);
    }

    // * factors[r]
    void emit_factors(const Xbyak::Xmm& sums, int first, int tokens) override {
        Temp factors(*this, "factors");
        const Xbyak::Xmm x((*factors).getIdx());
        uint8_t order = 0;
        for (int i = 0; i < 4; ++i) order |= uint8_t(((first + i) / tokens - first / tokens) << (2 * i));
        mov(rax, ptr[args() + offsetof(QkArgs, factors)]);
        vpermilps(x, ptr[rax + first / tokens * 4], order);
        vmulps(sums, sums, x);
    }

    const std::unique_ptr<WordLoader> loader_;
    std::vector<Vec> sums_;
};

}  // namespace

Status generate_scales(const RowKey& key, std::vector<uint8_t>* code) { return Scales(key).finish(code); }
Status generate_qk(const RowKey& key, std::vector<uint8_t>* code) {
    if (key.products == Products::bytes) return generate_qk_bytes(key, code);
    return key.words() ? QkWords(key).finish(code) : Qk(key).finish(code);
}

}  // namespace quire::jit
