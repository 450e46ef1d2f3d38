#include "jit/pv_passes.h"

#include <algorithm>
#include <cstddef>

namespace quire::jit {

void PvPasses::generate() {
    begin();
    mov(output_, ptr[args() + offsetof(PvArgs, output)]);
    mov(rescale_, ptr[args() + offsetof(PvArgs, rescale)]);
    const int rows = rows_a_pass();
    for (int row = 0; row < key_.rows; row += rows) emit_passes(row, std::min(rows, key_.rows - row));
    end();
}

// As few passes over the values as the registers allow, of about equal width.
void PvPasses::emit_passes(int row, int rows) {
    const int total = (key_.vecs() + step() - 1) / step(), most = widest(rows) / step();
    const int passes = (total + most - 1) / most;
    int done = 0;
    for (int i = 0; i < passes; ++i) {
        const int left = passes - i, width = (total - done + left - 1) / left;
        // The first pass over the query rows prefetches, each pass over the values its share.
        const int first = row == 0 ? kBlock * i / passes : kBlock;
        emit_pass({row, rows, done * step(), width * step(), first, kBlock * (i + 1) / passes});
        done += width;
    }
}

void PvPasses::emit_pass(const Pass& pass) {
    const std::vector<Vec> acc = vecs("acc", pass.rows * pass.width);
    stage("pass from row " + std::to_string(pass.row) + ", vector " + std::to_string(pass.vec));
    emit_begin(acc, pass);
    mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
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
    emit_turn(acc, pass);
    add(weights_, turn_bytes());
    add(rows_, 8 * kUnroll);
    sub(count_, kUnroll);
    jnz(each_turn, T_NEAR);
    emit_end(acc, pass);
    free(acc);
}

// As many rows a turn as the pass has for each.
void PvPasses::emit_prefetches(const Pass& pass) {
    const int turns = kBlock / kUnroll, rows = (pass.prefetch_end - pass.prefetch_begin + turns - 1) / turns;
    Label done;
    for (int row = 0; row < rows; ++row) {
        cmp(prefetch_.rows(), prefetch_end_);
        jae(done);
        for (int line = 0; line < prefetch_.lines(); ++line) prefetch_.line(0, line);
        prefetch_.move(1);
    }
    L(done);
}

}  // namespace quire::jit
