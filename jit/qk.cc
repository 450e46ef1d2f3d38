#include "jit/qk.h"

#include <algorithm>
#include <cstddef>

#include "jit/prefetch.h"
#include "jit/row_loader.h"

namespace quire::jit {
namespace {

// for key in 0..count:                                    emit_row
//   for g in 0..D/G: out[key][g] = float(rows[key][g])                of blocks: {d, m} or d of block g
class Scales : public Emitter {
public:
    explicit Scales(const RowKey& key) : Emitter(*key.target), key_(key) {
        begin();
        mov(rows_, ptr[args() + offsetof(ScalesArgs, rows)]);
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
        stage("row");
        mov(row_, ptr[rows_]);
        const int step = lanes() / key_.numbers();
        for (int g = 0; g < key_.groups(); g += step) {
            Temp factors(*this, "factors");
            emit_load(factors, g, std::min(step, key_.groups() - g));
            vmovups(ptr[out_ + g * key_.numbers() * 4], *factors);
        }
        add(rows_, 8);
        add(out_, key_.scales_stride() * 4);
    }

    void emit_load(const Vec& factors, int group, int count) {
        if (const BlockInfo* block = block_info(key_.format.type))
            return load_halves(factors, row_ + group * block->bytes, block->bytes, block->numbers(), count);
        const int bytes = type_bits(key_.format.scale_type) / 8;
        load_number(key_.format.scale_type, factors, row_ + group * bytes, count);
    }

    const RowKey key_;
    const Gpr rows_ = gpr("rows"), out_ = gpr("out"), count_ = gpr("count"), row_ = gpr("row");
};

// for key in 0..count step T, what is left one by one:                       emit_tiles
//   for each vector of the row:                                              emit_products
//     prefetch its share of T rows of the next block
//     k[t] = dequantised lanes of rows[key + t]             (row loader)
//     for r in 0..R: q = query[r] lanes; acc[r][t] += q * k[t]
//   scores[r][key + t] = sum of the lanes of acc[r][t]                       emit_sums
//
// live: acc[R * T] + k[T] + one that is q or the loader's
class Qk : public Emitter {
public:
    explicit Qk(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          loader_(RowLoader::make(*this, key.format, key.dim)),
          prefetch_(*this, key) {
        begin();
        mov(query_, ptr[args() + offsetof(QkArgs, query)]);
        mov(rows_, ptr[args() + offsetof(QkArgs, rows)]);
        prefetch_.set(args() + offsetof(QkArgs, next), 0);
        mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
        mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(QkArgs, count)]);
        const int tokens = tile();
        for (int t = 0; t < tokens; ++t) row_.push_back(gpr("row" + std::to_string(t)));
        emit_tiles(tokens);
        if (kKeyPadding % tokens != 0) {
            Label none;
            test(count_, count_);
            jz(none, T_NEAR);
            emit_tiles(1);
            L(none);
        }
        end();
    }

private:
    // Keys a tile: as many as the registers hold, so that a query vector that was loaded is used often and
    // chains of additions are many.
    int tile() const {
        for (int t : {6, 4, 3, 2})
            if (key_.rows * t + t + 1 <= num_vecs()) return t;
        return 1;
    }

    void emit_tiles(int tokens) {
        stage("tiles of " + std::to_string(tokens) + " keys");
        Label each_tile;
        L(each_tile);
        for (int t = 0; t < tokens; ++t) mov(row_[size_t(t)], ptr[rows_ + 8 * t]);
        const std::vector<Vec> acc = vecs("acc", key_.rows * tokens);
        for (const Vec& v : acc) zero(v);
        for (int vec = 0; vec < loader_->vecs(); ++vec) {
            emit_prefetches(tokens, vec);
            emit_products(acc, tokens, vec);
        }
        emit_sums(acc, tokens);
        free(acc);
        add(rows_, 8 * tokens);
        prefetch_.move(tokens);
        add(scales_, key_.scales_stride() * 4 * tokens);
        add(scores_, 4 * tokens);
        sub(count_, tokens);
        cmp(count_, tokens);
        jge(each_tile, T_NEAR);
    }

    void emit_prefetches(int tokens, int vec) {
        const int lines = prefetch_.lines(), total = tokens * lines, vecs = loader_->vecs();
        for (int i = vec * total / vecs; i < (vec + 1) * total / vecs; ++i)
            prefetch_.line(i / lines, i % lines);
    }

    void emit_products(const std::vector<Vec>& acc, int tokens, int vec) {
        stage("products, vector " + std::to_string(vec));
        const std::vector<Vec> k = vecs("k", tokens);
        for (int t = 0; t < tokens; ++t)
            loader_->load(k[size_t(t)], vec, row_[size_t(t)], scales_ + t * key_.scales_stride() * 4);
        for (int r = 0; r < key_.rows; ++r) {
            Temp q(*this, "q");
            vmovups(q, ptr[query_ + (r * key_.padded() + vec * lanes()) * 4]);
            for (int t = 0; t < tokens; ++t) vfmadd231ps(acc[size_t(r * tokens + t)], q, k[size_t(t)]);
        }
        free(k);
    }

    // Four accumulators at a time; where fewer are left, any register fills up.
    void emit_sums(const std::vector<Vec>& acc, int tokens) {
        stage("sums");
        const int total = int(acc.size());
        Temp spare(*this, "spare");
        for (int first = 0; first < total; first += 4) {
            const auto at = [&](int i) { return first + i < total ? acc[size_t(first + i)] : *spare; };
            sum_four(at(0), at(0), at(1), at(2), at(3));
            emit_store_sums(Xbyak::Xmm(at(0).getIdx()), first, std::min(4, total - first), tokens);
        }
    }

    // Sums of the accumulators first .. first + n: runs of keys of one row are stored at once.
    void emit_store_sums(const Xbyak::Xmm& sums, int first, int n, int tokens) {
        for (int i = 0; i < n;) {
            const int row = (first + i) / tokens, key = (first + i) % tokens;
            const int run = std::min(n - i, tokens - key);
            const RegExp to = scores_ + (row * kBlock + key) * 4;
            const int stored = run >= 4 ? 4 : run >= 2 && i % 2 == 0 ? 2 : 1;
            if (stored == 4)
                vmovups(ptr[to], sums);
            else if (stored == 2)
                i == 0 ? vmovlps(ptr[to], sums) : vmovhps(ptr[to], sums);
            else
                i == 0 ? vmovss(ptr[to], sums) : vextractps(ptr[to], sums, uint8_t(i));
            i += stored;
        }
    }

    const RowKey key_;
    const std::unique_ptr<RowLoader> loader_;
    Prefetch prefetch_;
    const Gpr query_ = gpr("query"), rows_ = gpr("rows"), scales_ = gpr("scales"), scores_ = gpr("scores"),
              count_ = gpr("count");
    std::vector<Gpr> row_;
};

}  // namespace

Status generate_scales(const RowKey& key, std::vector<uint8_t>* code) { return Scales(key).finish(code); }
Status generate_qk(const RowKey& key, std::vector<uint8_t>* code) { return Qk(key).finish(code); }

}  // namespace quire::jit
