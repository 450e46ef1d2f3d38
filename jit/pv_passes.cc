#include "jit/pv_passes.h"

#include <algorithm>
#include <cstddef>

namespace quire::jit {

void PvPasses::generate() {
    begin();
    emit_start();
    mov(output_, ptr[args() + offsetof(PvArgs, output)]);
    mov(rescale_, ptr[args() + offsetof(PvArgs, rescale)]);
    const int rows = rows_a_pass();
    // As few passes over the values as the registers allow, of about equal width.
    const int total = (key_.vecs() + step() - 1) / step(), most = widest(rows) / step();
    const int passes = (total + most - 1) / most;
    for (int i = 0, done = 0; i < passes; ++i) {
        const int left = passes - i, width = (total - done + left - 1) / left;
        for (int row = 0; row < key_.rows; row += rows) {
            // The first pass over the query rows prefetches, each pass over the values its share.
            const int first = row == 0 ? kBlock * i / passes : kBlock;
            emit_pass({row, std::min(rows, key_.rows - row), done * step(), width * step(), first,
                       kBlock * (i + 1) / passes});
        }
        done += width;
    }
    end();
}

void PvPasses::emit_pass(const Pass& pass) {
    const std::vector<Vec> acc = vecs("acc", pass.rows * pass.width * sums());
    stage("pass from row " + std::to_string(pass.row) + ", vector " + std::to_string(pass.vec));
    emit_begin(acc, pass);
    mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
    rows_.set(args() + offsetof(PvArgs, rows));
    if (prefetches(pass)) {
        const int share = pass.prefetch_end - pass.prefetch_begin;
        prefetch_.turns_of(share % turns() ? 1 : rows_a_turn(pass));
        prefetch_.set(args() + offsetof(PvArgs, next), pass.prefetch_begin);
        lea(prefetch_end_, ptr[prefetch_.rows().here() + prefetch_.step(share)]);
    }
    mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
    mov(count_, ptr[args() + offsetof(PvArgs, count)]);
    if (keeps_values()) mov(numbers_, ptr[args() + offsetof(PvArgs, numbers)]);
    Label each_turn;
    L(each_turn);
    if (!asks_within()) emit_asks(pass, 0, 1);
    rows_.turn(row_);
    emit_turn(acc, pass);
    if (turn_bytes() > 0) add(weights_, turn_bytes());
    rows_.move(keys_a_turn());
    if (keeps_values()) add(numbers_, keys_a_turn() * pass.width * vec_bytes());
    sub(count_, keys_a_turn());
    jnz(each_turn, T_NEAR);
    emit_end(acc, pass);
    free(acc);
}

// Of the next rows; not of less than four lines, which are asked for at so many places.
int PvPasses::rows_a_turn(const Pass& pass) const {
    constexpr int kPlaces = 4;
    const int share = pass.prefetch_end - pass.prefetch_begin, rows = share / turns();
    const bool halves = asks_at_end() && share % turns() == 0 && rows % 2 == 0 &&
                        rows / 2 * key_.row_bytes() % (kPlaces * int(kLineBytes)) == 0;
    return halves ? rows / 2 : (share + turns() - 1) / turns();
}

void PvPasses::emit_last_asks(const Pass& pass, int part, int parts) {
    const int rows = pass.prefetch_end - pass.prefetch_begin - turns() * rows_a_turn(pass);
    if (prefetches(pass) && rows > 0) prefetch_.some(rows, part, parts);
}

void PvPasses::emit_asks(const Pass& pass, int part, int parts) {
    if (prefetches(pass)) emit_prefetches(pass, part, parts);
    // Later passes read the same rows.
    if (pass.row == 0 && pass.vec == 0) emit_own_rows_ahead(pass, part, parts);
}

// Rows that this kernel reads itself, once more.
void PvPasses::emit_own_rows_ahead(const Pass& pass, int part, int parts) {
    if (prefetch_.asks_again()) return prefetch_.again(rows_, count_, keys_a_turn(), part, parts);
    if (asks_soon(pass)) prefetch_.soon(rows_, keys_a_turn(), part, parts);
}

// Listed rows whose lines are read by a pass each: those of the second are long in the caches before it comes
// to them. Other kernels lose by it, or gain nothing (docs/performance.md, "From DRAM").
bool PvPasses::asks_soon(const Pass& pass) const {
    const bool own_lines = pass.width < key_.vecs() && !keeps_values() && key_.row_bytes() > int(kLineBytes);
    return own_lines && !rows_.side_by_side() && key_.words() && vec_bytes() == 64;
}

// As many rows a turn as the pass has for each; where that is no whole number, with the first part.
void PvPasses::emit_prefetches(const Pass& pass, int part, int parts) {
    const int share = pass.prefetch_end - pass.prefetch_begin, rows = rows_a_turn(pass);
    if (share % turns() == 0) {
        prefetch_.some(rows, part, parts);
        if (part + 1 == parts) prefetch_.move(rows);
        return;
    }
    if (part > 0) return;
    Label done;
    for (int row = 0; row < rows; ++row) {
        cmp(prefetch_.rows().here(), prefetch_end_);
        jae(done);
        prefetch_.some(1, 0, 1);
        prefetch_.move(1);
    }
    L(done);
}

}  // namespace quire::jit
