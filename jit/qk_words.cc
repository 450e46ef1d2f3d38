#include "jit/qk_words.h"

#include <cstddef>

#include "jit/qk_tiles.h"
#include "jit/word_loader.h"

namespace quire::jit {
namespace {

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
    bool late() const override { return lanes() == 8; }
    int tile() const override {
        if (late()) return 1;
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

    void emit_factor(const Vec& sums, int row) override {
        mov(rax, ptr[args() + offsetof(QkArgs, factors)]);
        multiply_by_scalar(sums, rax + row * 4);
    }

    const std::unique_ptr<WordLoader> loader_;
    std::vector<Vec> sums_;
};

}  // namespace

Status generate_qk_words(const RowKey& key, std::vector<uint8_t>* code) { return QkWords(key).finish(code); }

}  // namespace quire::jit
