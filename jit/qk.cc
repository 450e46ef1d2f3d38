#include "jit/qk.h"

#include <algorithm>
#include <cstddef>

#include "jit/row_loader.h"

namespace quire::jit {
namespace {

constexpr int kLine = 64;

// for key in 0..count:                                    emit_row
//   prefetch the same row of the next block
//   for g in 0..D/G: out[key][g] = float(rows[key][g])
class Scales : public Emitter {
public:
    explicit Scales(const RowKey& key) : Emitter(*key.target), key_(key) {
        begin();
        mov(rows_, ptr[args() + offsetof(ScalesArgs, rows)]);
        mov(next_, ptr[args() + offsetof(ScalesArgs, next)]);
        mov(out_, ptr[args() + offsetof(ScalesArgs, out)]);
        mov(count_, ptr[args() + offsetof(ScalesArgs, count)]);
        Label each_row;
        L(each_row);
        emit_row();
        dec(count_);
        jnz(each_row);
        end();
    }

private:
    void emit_row() {
        const int bytes = type_bits(key_.format.scale_type) / 8;
        mov(row_, ptr[next_]);
        for (int line = 0; line < key_.groups() * bytes; line += kLine) prefetcht1(ptr[row_ + line]);
        mov(row_, ptr[rows_]);
        for (int g = 0; g < key_.groups(); g += lanes()) {
            Temp factors(*this, "factors");
            load_number(key_.format.scale_type, factors, row_ + g * bytes,
                        std::min(lanes(), key_.groups() - g));
            vmovups(ptr[out_ + g * 4], *factors);
        }
        add(rows_, 8);
        add(next_, 8);
        add(out_, key_.scales_stride() * 4);
    }

    const RowKey key_;
    const Gpr rows_ = gpr("rows"), next_ = gpr("next"), out_ = gpr("out"), count_ = gpr("count"),
              row_ = gpr("row");
};

// for key in 0..count step T:
//   prefetch T rows of the next block                                        emit_addresses
//   for each step of the row:                                                emit_products
//     k[t] = dequantised lanes of rows[key + t]             (row loader)
//     for r in 0..R: q = query[r] lanes; acc[r][t] += q * k[t]
//   scores[r][key + t] = sum of the lanes of acc[r][t]                       emit_sums
//
// live: acc[R * T] + k[T * step] + q + one of the loader
class Qk : public Emitter {
public:
    explicit Qk(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          loader_(RowLoader::make(*this, key.format, key.dim)),
          tokens_(tile()) {
        begin();
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(rows_, ptr[args() + offsetof(QkArgs, rows)]);
        mov(next_, ptr[args() + offsetof(QkArgs, next)]);
        mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        for (int t = 0; t < tokens_; ++t) row_.push_back(gpr("row" + std::to_string(t)));
        Label each_tile;
        L(each_tile);
        {
            emit_addresses();
            acc_ = vecs("acc", key_.rows * tokens_);
            for (const Vec& v : acc_) zero(v);
            for (int vec = 0; vec < loader_->vecs(); vec += loader_->step()) emit_products(vec);
            emit_sums();
            free(acc_);
        }
        add(rows_, 8 * tokens_);
        add(next_, 8 * tokens_);
        add(scales_, key_.scales_stride() * 4 * tokens_);
        add(scores_, 4 * tokens_);
        sub(count_, tokens_);
        jnz(each_tile, T_NEAR);
        end();
    }

private:
    // Keys a tile: as many as the registers hold, so that a query vector that was loaded is used often.
    int tile() const {
        for (int t : {4, 2})
            if (key_.rows * t + t * loader_->step() + 2 <= num_vecs()) return t;
        return 1;
    }
    const Vec& acc(int r, int t) const { return acc_[size_t(r * tokens_ + t)]; }

    void emit_addresses() {
        for (int t = 0; t < tokens_; ++t) {
            mov(rax, ptr[next_ + 8 * t]);
            for (int line = 0; line < key_.row_bytes(); line += kLine) prefetcht1(ptr[rax + line]);
            mov(row_[size_t(t)], ptr[rows_ + 8 * t]);
        }
    }

    void emit_products(int vec) {
        const int step = loader_->step();
        const std::vector<Vec> k = vecs("k", tokens_ * step);
        for (int t = 0; t < tokens_; ++t)
            loader_->load(&k[size_t(t * step)], vec, row_[size_t(t)], scales_ + t * key_.scales_stride() * 4);
        for (int s = 0; s < step; ++s) {
            for (int r = 0; r < key_.rows; ++r) {
                Temp q(*this, "q");
                vmovups(q, ptr[query_ + (r * key_.padded() + (vec + s) * lanes()) * 4]);
                for (int t = 0; t < tokens_; ++t) vfmadd231ps(acc(r, t), q, k[size_t(t * step + s)]);
            }
        }
        free(k);
    }

    // Four accumulators at a time; where fewer are left, dead registers fill up.
    void emit_sums() {
        const std::vector<Vec> spare = vecs("spare", 3);
        const int total = key_.rows * tokens_;
        for (int first = 0; first < total; first += 4) {
            std::vector<Vec> four;
            for (int i = 0; i < 4; ++i)
                four.push_back(first + i < total ? acc_[size_t(first + i)]
                                                 : spare[size_t(first + i - total)]);
            sum_four(four[0], four[0], four[1], four[2], four[3]);
            const Xbyak::Xmm sums(four[0].getIdx());
            emit_store_sums(sums, first, std::min(4, total - first));
        }
        free(spare);
    }

    RegExp score_at(int index) const { return scores_ + (index / tokens_ * kBlock + index % tokens_) * 4; }

    void emit_store_sums(const Xbyak::Xmm& sums, int first, int n) {
        if (tokens_ == 4) return vmovups(ptr[score_at(first)], sums);
        if (tokens_ == 2) {
            vmovlps(ptr[score_at(first)], sums);
            if (n > 2) vmovhps(ptr[score_at(first + 2)], sums);
            return;
        }
        vmovss(ptr[score_at(first)], sums);
        for (int i = 1; i < n; ++i) vextractps(ptr[score_at(first + i)], sums, uint8_t(i));
    }

    const RowKey key_;
    const std::unique_ptr<RowLoader> loader_;
    const int tokens_;
    const Gpr query_ = gpr("query"), rows_ = gpr("rows"), next_ = gpr("next"), scales_ = gpr("scales"),
              scores_ = gpr("scores"), count_ = gpr("count");
    std::vector<Gpr> row_;
    std::vector<Vec> acc_;
};

}  // namespace

Status generate_scales(const RowKey& key, std::vector<uint8_t>* code) { return Scales(key).finish(code); }
Status generate_qk(const RowKey& key, std::vector<uint8_t>* code) { return Qk(key).finish(code); }

}  // namespace quire::jit
