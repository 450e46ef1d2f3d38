#include "jit/pv.h"

#include <algorithm>
#include <cstddef>

#include "jit/prefetch.h"
#include "jit/row_loader.h"

namespace quire::jit {
namespace {

// Keys of one turn of the loop: what is not arithmetic is shared by them.
constexpr int kUnroll = 4;
static_assert(kKeyPadding % kUnroll == 0);

// for each pass over R' of the query rows and W vectors of the value row:     emit_pass
//   acc[r][w] = output[r][w] * rescale[r]                                     emit_load
//   for key in 0..count:                                                      emit_key
//     prefetch some of this pass's share of the next block                    emit_prefetches
//     v[w] = dequantised lanes of rows[key]                    (row loader)
//     for r: p = probabilities[r][key]; acc[r][w] += p * v[w]
//   output[r][w] = acc[r][w]                                                  emit_store
//
// live: acc[R' * W] + v[W] + one that is p or the loader's
class Pv : public Emitter {
public:
    explicit Pv(const RowKey& key)
        : Emitter(*key.target),
          key_(key),
          loader_(RowLoader::make(*this, key.format, key.dim)),
          prefetch_(*this, key) {
        begin();
        mov(output_, ptr[args() + offsetof(PvArgs, output)]);
        const int rows = rows_a_pass();
        for (int row = 0; row < key_.rows; row += rows) emit_passes(row, std::min(rows, key_.rows - row));
        end();
    }

private:
    int rows_a_pass() const {
        int rows = key_.rows;
        while (rows + 2 > num_vecs()) rows = (rows + 1) / 2;
        return rows;
    }

    // As few passes over the values as the registers allow, of about equal width.
    void emit_passes(int row, int rows) {
        const int total = loader_->vecs(), most = std::min(8, (num_vecs() - 1) / (rows + 1));
        const int passes = (total + most - 1) / most;
        int vec = 0;
        for (int i = 0; i < passes; ++i) {
            const int left = passes - i, width = (total - vec + left - 1) / left;
            // The first pass over the query rows prefetches, each pass over the values its share.
            const int first = row == 0 ? kBlock * i / passes : kBlock;
            emit_pass({row, rows, vec, width, first, kBlock * (i + 1) / passes});
            vec += width;
        }
    }

    struct Pass {
        int row, rows, vec, width;
        int prefetch_begin, prefetch_end;  // rows of the next block
    };

    void emit_pass(const Pass& pass) {
        const std::vector<Vec> acc = vecs("acc", pass.rows * pass.width), v = vecs("v", pass.width);
        emit_load(acc, pass);
        mov(probabilities_, ptr[args() + offsetof(PvArgs, probabilities)]);
        mov(rows_, ptr[args() + offsetof(PvArgs, rows)]);
        if (prefetches(pass)) {
            prefetch_.set(args() + offsetof(PvArgs, next), pass.prefetch_begin);
            lea(prefetch_end_, ptr[prefetch_.rows() + 8 * (pass.prefetch_end - pass.prefetch_begin)]);
        }
        mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
        mov(count_, ptr[args() + offsetof(PvArgs, count)]);
        Label each_turn;
        L(each_turn);
        if (prefetches(pass)) emit_prefetches(pass);
        for (int key = 0; key < kUnroll; ++key) emit_key(acc, v, pass, key);
        add(probabilities_, 4 * kUnroll);
        add(rows_, 8 * kUnroll);
        add(scales_, key_.scales_stride() * 4 * kUnroll);
        sub(count_, kUnroll);
        jnz(each_turn, T_NEAR);
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w)
                vmovups(ptr[output_at(pass.row + r, pass.vec + w)], acc[size_t(r * pass.width + w)]);
        free(acc);
        free(v);
    }

    RegExp output_at(int row, int vec) const { return output_ + (row * key_.padded() + vec * lanes()) * 4; }

    void emit_load(const std::vector<Vec>& acc, const Pass& pass) {
        stage("load");
        mov(rescale_, ptr[args() + offsetof(PvArgs, rescale)]);
        for (int r = 0; r < pass.rows; ++r) {
            Temp rescale(*this, "rescale");
            vbroadcastss(rescale, ptr[rescale_ + (pass.row + r) * 4]);
            for (int w = 0; w < pass.width; ++w)
                vmulps(acc[size_t(r * pass.width + w)], *rescale, ptr[output_at(pass.row + r, pass.vec + w)]);
        }
    }

    void emit_key(const std::vector<Vec>& acc, const std::vector<Vec>& v, const Pass& pass, int key) {
        stage("key " + std::to_string(key));
        mov(row_, ptr[rows_ + 8 * key]);
        for (int w = 0; w < pass.width; ++w)
            loader_->load(v[size_t(w)], pass.vec + w, row_, scales_ + key * key_.scales_stride() * 4);
        for (int r = 0; r < pass.rows; ++r) {
            Temp p(*this, "p");
            vbroadcastss(p, ptr[probabilities_ + ((pass.row + r) * kBlock + key) * 4]);
            for (int w = 0; w < pass.width; ++w)
                vfmadd231ps(acc[size_t(r * pass.width + w)], p, v[size_t(w)]);
        }
    }

    static bool prefetches(const Pass& pass) { return pass.prefetch_begin < pass.prefetch_end; }

    // As many rows a turn as the pass has for each.
    void emit_prefetches(const Pass& pass) {
        const int turns = kBlock / kUnroll,
                  rows = (pass.prefetch_end - pass.prefetch_begin + turns - 1) / turns;
        Label done;
        for (int row = 0; row < rows; ++row) {
            cmp(prefetch_.rows(), prefetch_end_);
            jae(done);
            for (int line = 0; line < prefetch_.lines(); ++line) prefetch_.line(0, line);
            prefetch_.move(1);
        }
        L(done);
    }

    const RowKey key_;
    const std::unique_ptr<RowLoader> loader_;
    Prefetch prefetch_;
    const Gpr prefetch_end_ = gpr("prefetch end"), output_ = gpr("output"),
              probabilities_ = gpr("probabilities"), rows_ = gpr("rows"), scales_ = gpr("scales"),
              rescale_ = gpr("rescale"), count_ = gpr("count"), row_ = gpr("row");
};

}  // namespace

Status generate_pv(const RowKey& key, std::vector<uint8_t>* code) { return Pv(key).finish(code); }

}  // namespace quire::jit
