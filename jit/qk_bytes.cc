#include "jit/qk_bytes.h"

#include <cstddef>

#include "jit/byte_loader.h"
#include "jit/qk_tiles.h"

namespace quire::jit {
namespace {

//   for each chunk of the row: k = its codes, from 0 on                       (byte loader)
//     for r in 0..R: sum = starts[r][chunk] + query[r] * k, in int32           emit_dots
//                    acc[r][t] += float(sum) * scale of the lane's group
//     after each span of chunks: acc[r][t] *= factors[r][span]                 emit_lane_factors
//
// A start takes out what codes are above the signed ones: -zero * the sum of the lane's query bytes. In
// each span a lane of the query has a factor of its own, so that a large element costs only its lane
// precision.
//
// live: acc[R * T] + k, the scale, sum and the dots'
class QkBytes : public QkTiles {
public:
    explicit QkBytes(const RowKey& key)
        : QkTiles(key), loader_(ByteLoader::make(*this, key.format, key.dim)) {
        generate();
    }

private:
    int tile() const override {
        for (int t : {4, 2})
            if (fit(rows_a_pass(), t)) return t;
        return 1;
    }
    bool fit(int rows, int tokens) const { return rows * tokens + loader_->parts() + 4 <= num_vecs(); }
    bool fits(int rows) const override { return fit(rows, 1); }
    int parts() const override { return loader_->chunks(); }
    int chunk_bytes() const { return loader_->parts() * vec_bytes(); }

    void emit_products(const std::vector<Vec>& acc, int tokens, int chunk, const Pass& pass) override {
        stage("products, chunk " + std::to_string(chunk));
        mov(starts_, ptr[args() + offsetof(QkArgs, starts)]);
        for (int t = 0; t < tokens; ++t) {
            const std::vector<Vec> k = vecs("k", loader_->parts());
            loader_->load(k.data(), chunk, row_[size_t(t)]);
            Temp scale(*this, "scale");
            load_lanes(scale, scales_of(t), loader_->groups(chunk));
            for (int r = 0; r < pass.rows; ++r) {
                Temp sum(*this, "sum");
                emit_dots(sum, k, pass.row + r, chunk);
                vcvtdq2ps(sum, sum);
                vfmadd231ps(acc[size_t(r * tokens + t)], sum, scale);
            }
            free(k);
        }
        if (chunk + 1 == parts() || (chunk + 1) % span_ == 0)
            emit_lane_factors(acc, tokens, chunk / span_, pass);
    }

    void emit_dots(const Vec& sum, const std::vector<Vec>& k, int r, int chunk) {
        const int at = r * parts() + chunk;
        dot_bytes(sum, starts_ + at * vec_bytes(), k, query_ + at * chunk_bytes());
    }

    void emit_lane_factors(const std::vector<Vec>& acc, int tokens, int span, const Pass& pass) {
        const int spans = (parts() + span_ - 1) / span_;
        mov(rax, ptr[args() + offsetof(QkArgs, factors)]);
        for (int r = 0; r < pass.rows; ++r)
            for (int t = 0; t < tokens; ++t) {
                const Vec& v = acc[size_t(r * tokens + t)];
                vmulps(v, v, ptr[rax + ((pass.row + r) * spans + span) * vec_bytes()]);
            }
    }

    void emit_factors(const Xbyak::Xmm&, int, int) override {}

    const std::unique_ptr<ByteLoader> loader_;
    const int span_ = byte_span(key_.format);
    const Gpr starts_ = gpr("starts");
};

}  // namespace

Status generate_qk_bytes(const RowKey& key, std::vector<uint8_t>* code) { return QkBytes(key).finish(code); }

}  // namespace quire::jit
