#include "jit/qk_tiles.h"

#include <algorithm>
#include <cstddef>

namespace quire::jit {

void QkTiles::generate() {
    begin();
    mov(query_, ptr[args() + offsetof(QkArgs, query)]);
    rows_.set(args() + offsetof(QkArgs, rows));
    prefetch_.turns_of(kKeyPadding % tile() ? 1 : tile());
    prefetch_.set(args() + offsetof(QkArgs, next), 0);
    mov(scales_, ptr[args() + offsetof(QkArgs, scales)]);
    mov(scores_, ptr[args() + offsetof(QkArgs, scores)]);
    mov(count_, ptr[args() + offsetof(QkArgs, count)]);
    if (rows_a_pass() < key_.rows || late()) {
        numbers_ = gpr("numbers");
        mov(numbers_, ptr[args() + offsetof(QkArgs, numbers)]);
    }
    const int tokens = tile();
    for (int t = 0; t < tokens; ++t)
        address_.push_back(rows_.adjacent() ? Gpr() : gpr("row" + std::to_string(t)));
    emit_tiles(tokens);
    if (kKeyPadding % tokens != 0) {
        Label none;
        test(count_, count_);
        jz(none, T_NEAR);
        emit_tiles(1);
        L(none);
    }
    emit_end();
    end();
}

void QkTiles::emit_tiles(int tokens) {
    stage("tiles of " + std::to_string(tokens) + " keys");
    Label each_tile;
    L(each_tile);
    row_.clear();
    for (int t = 0; t < tokens; ++t) row_.push_back(rows_.at(t, address_[size_t(t)]));
    for (int row = 0; row < key_.rows; row += rows_a_pass())
        emit_pass(tokens, {row, std::min(rows_a_pass(), key_.rows - row)});
    rows_.move(tokens);
    prefetch_.move(tokens);
    add(scales_, key_.scales_stride() * 4 * tokens);
    add(scores_, 4 * tokens);
    sub(count_, tokens);
    if (late()) {
        add(numbers_, tokens * vec_bytes());
        test(count_, kLate - 1);
        jnz(each_tile, T_NEAR);
        emit_late_sums();
    }
    cmp(count_, tokens);
    jge(each_tile, T_NEAR);
}

void QkTiles::emit_pass(int tokens, const Pass& pass) {
    const std::vector<Vec> acc = vecs("acc", pass.rows * tokens);
    for (const Vec& v : acc) zero(v);
    for (int part = 0; part < parts(); ++part) {
        if (pass.row == 0) emit_prefetches(tokens, part);
        emit_products(acc, tokens, part, pass);
    }
    late() ? emit_keep(acc, tokens, pass) : emit_sums(acc, tokens, pass);
    free(acc);
}

void QkTiles::emit_prefetches(int tokens, int part) {
    prefetch_.some(tokens, part, parts());
    prefetch_.soon(rows_, tokens, part, parts());
}

// numbers[row][key % kLate]
void QkTiles::emit_keep(const std::vector<Vec>& acc, int tokens, const Pass& pass) {
    for (int r = 0; r < pass.rows; ++r)
        for (int t = 0; t < tokens; ++t)
            vmovups(ptr[numbers_ + ((pass.row + r) * kLate + t) * vec_bytes()], acc[size_t(r * tokens + t)]);
}

// Of the keys behind which numbers_ and scores_ are.
void QkTiles::emit_late_sums() {
    stage("late sums");
    sub(numbers_, kLate * vec_bytes());
    for (int r = 0; r < key_.rows; ++r) {
        Temp sums(*this, "sums");
        sum_eight(sums, numbers_ + r * kLate * vec_bytes());
        emit_factor(sums, r);
        vmovups(ptr[scores_ + (r * kBlock - kLate) * 4], sums);
    }
}

// Eight accumulators at a time, or four; where fewer are left, zeros fill up: what a register happens to
// hold, integers say, may be slow to add.
void QkTiles::emit_sums(const std::vector<Vec>& acc, int tokens, const Pass& pass) {
    stage("sums");
    const int total = int(acc.size());
    Temp spare(*this, "spare");
    if (total % 4 != 0) zero(spare);
    for (int first = 0; first < total;) {
        Vec v[8];
        for (int i = 0; i < 8; ++i) v[i] = first + i < total ? acc[size_t(first + i)] : *spare;
        const int step = total - first > 4 ? 8 : 4;
        step == 8 ? sum_eight(v) : sum_four(v[0], v[0], v[1], v[2], v[3]);
        for (int i = 0; i < std::min(step, total - first); i += 4) {
            const Xbyak::Xmm sums(v[i].getIdx());
            emit_factors(sums, pass.row * tokens + first + i, tokens);
            emit_store_sums(sums, pass.row, first + i, std::min(4, total - first - i), tokens);
        }
        first += step;
    }
}

// Sums of the accumulators first .. first + n, which begin at a row: runs of keys of one row are stored at
// once.
void QkTiles::emit_store_sums(const Xbyak::Xmm& sums, int begin, int first, int n, int tokens) {
    for (int i = 0; i < n;) {
        const int row = begin + (first + i) / tokens, key = (first + i) % tokens;
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

}  // namespace quire::jit
