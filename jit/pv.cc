#include "jit/pv.h"

#include <algorithm>
#include <cstddef>

#include "jit/row_loader.h"

namespace quire::jit {
namespace {

constexpr int kLine = 64;

// for each pass over R' of the query rows and W vectors of the value row:     emit_pass
//   acc[r][w] = output[r][w] * rescale[r]                                     emit_load
//   for key in 0..count:                                                      emit_key
//     prefetch this pass's share of the row's lines in the next block
//     v[w] = dequantised lanes of rows[key]                    (row loader)
//     for r: p = probabilities[r][key]; acc[r][w] += p * v[w]
//   output[r][w] = acc[r][w]                                                  emit_store
//
// live: acc[R' * W] + v[W] + p + one of the loader
class Pv : public Emitter {
public:
    explicit Pv(const RowKey& key)
        : Emitter(*key.target), key_(key), loader_(RowLoader::make(*this, key.format, key.dim)) {
        choose_tile();
        begin();
        mov(output_, ptr[args() + offsetof(PvArgs, output)]);
        for (int row = 0; row < key_.rows; row += rows_a_pass_)
            for (int vec = 0; vec < loader_->vecs(); vec += vecs_a_pass_)
                emit_pass(row, std::min(rows_a_pass_, key_.rows - row), vec,
                          std::min(vecs_a_pass_, loader_->vecs() - vec));
        end();
    }

private:
    // As few passes over the rows as the registers allow, of equal width.
    void choose_tile() {
        const int step = loader_->step(), total = loader_->vecs();
        rows_a_pass_ = key_.rows;
        while ((rows_a_pass_ + 1) * step + 2 > num_vecs()) rows_a_pass_ = (rows_a_pass_ + 1) / 2;
        const int most = std::min(8, (num_vecs() - 2) / (rows_a_pass_ + 1)) / step * step;
        const int passes = (total + most - 1) / most;
        vecs_a_pass_ = (total / step + passes - 1) / passes * step;
    }

    void emit_pass(int row, int rows, int vec, int width) {
        const std::vector<Vec> acc = vecs("acc", rows * width), v = vecs("v", width);
        emit_load(acc, row, rows, vec, width);
        mov(probabilities_, ptr[args() + offsetof(PvArgs, probabilities)]);
        mov(rows_, ptr[args() + offsetof(PvArgs, rows)]);
        mov(next_, ptr[args() + offsetof(PvArgs, next)]);
        mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
        mov(count_, ptr[args() + offsetof(PvArgs, count)]);
        Label each_key;
        L(each_key);
        emit_key(acc, v, row, rows, vec, width);
        add(probabilities_, 4);
        add(rows_, 8);
        add(next_, 8);
        add(scales_, key_.scales_stride() * 4);
        dec(count_);
        jnz(each_key, T_NEAR);
        for (int r = 0; r < rows; ++r)
            for (int w = 0; w < width; ++w)
                vmovups(ptr[output_at(row + r, vec + w)], acc[size_t(r * width + w)]);
        free(acc);
        free(v);
    }

    RegExp output_at(int row, int vec) const { return output_ + (row * key_.padded() + vec * lanes()) * 4; }

    void emit_load(const std::vector<Vec>& acc, int row, int rows, int vec, int width) {
        mov(rescale_, ptr[args() + offsetof(PvArgs, rescale)]);
        for (int r = 0; r < rows; ++r) {
            Temp rescale(*this, "rescale");
            vbroadcastss(rescale, ptr[rescale_ + (row + r) * 4]);
            for (int w = 0; w < width; ++w)
                vmulps(acc[size_t(r * width + w)], *rescale, ptr[output_at(row + r, vec + w)]);
        }
    }

    void emit_key(const std::vector<Vec>& acc, const std::vector<Vec>& v, int row, int rows, int vec,
                  int width) {
        // The first pass over the query rows prefetches; each pass over the vectors its share, so that the
        // requests are spread over the block.
        if (row == 0) {
            const int begin = line_of(vec), end = line_of(vec + vecs_a_pass_);
            if (begin < end) mov(rax, ptr[next_]);
            for (int line = begin; line < end; ++line) prefetcht1(ptr[rax + line * kLine]);
        }
        mov(row_, ptr[rows_]);
        for (int w = 0; w < width; w += loader_->step()) loader_->load(&v[size_t(w)], vec + w, row_, scales_);
        for (int r = 0; r < rows; ++r) {
            Temp p(*this, "p");
            vbroadcastss(p, ptr[probabilities_ + (row + r) * kBlock * 4]);
            for (int w = 0; w < width; ++w) vfmadd231ps(acc[size_t(r * width + w)], p, v[size_t(w)]);
        }
    }

    // Lines of a row prefetched by passes that begin before `vec`.
    int line_of(int vec) const {
        const int lines = (key_.row_bytes() + kLine - 1) / kLine;
        return std::min(lines, (vec * lines + loader_->vecs() - 1) / loader_->vecs());
    }

    const RowKey key_;
    const std::unique_ptr<RowLoader> loader_;
    int rows_a_pass_ = 0, vecs_a_pass_ = 0;
    const Gpr output_ = gpr("output"), probabilities_ = gpr("probabilities"), rows_ = gpr("rows"),
              next_ = gpr("next"), scales_ = gpr("scales"), rescale_ = gpr("rescale"), count_ = gpr("count"),
              row_ = gpr("row");
};

}  // namespace

Status generate_pv(const RowKey& key, std::vector<uint8_t>* code) { return Pv(key).finish(code); }

}  // namespace quire::jit
