#include "jit/token_pv_passes.h"

#include <cstddef>

namespace quire::jit {
namespace {

constexpr int kBlocks = kBlock / kBlockTokens;

}  // namespace

void TokenPvPasses::generate() {
    begin();
    mov(output_, ptr[args() + offsetof(PvArgs, output)]);
    mov(rescale_, ptr[args() + offsetof(PvArgs, rescale)]);
    hold_upper_half();
    emit_kept();
    const int parts = (key_.rows + most_rows() - 1) / most_rows();
    for (int part = 0, row = 0; part < parts; ++part) {
        const int rows = (key_.rows - row + parts - part - 1) / (parts - part);
        emit_rows(row, rows);
        row += rows;
    }
    end();
}

// Of part of the query rows, all passes.
void TokenPvPasses::emit_rows(int row, int rows) {
    const int passes = (key_.vecs() + widest(rows) - 1) / widest(rows);
    hold(rows, (key_.vecs() + passes - 1) / passes);
    for (int i = 0, done = 0; i < passes; ++i) {
        const int left = passes - i, width = (key_.vecs() - done + left - 1) / left;
        emit_pass({row, rows, done, width}, i, passes);
        done += width;
    }
}

void TokenPvPasses::emit_pass(const Pass& pass, int index, int passes) {
    stage("pass from row " + std::to_string(pass.row) + ", vector " + std::to_string(pass.vec));
    const std::vector<Vec> acc = vecs("acc", pass.rows * pass.width * sums());
    emit_begin(acc, pass);
    mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
    if (takes_scales()) mov(scales_, ptr[args() + scales_arg()]);
    mov(blocks_, ptr[args() + offsetof(PvArgs, rows)]);
    // The pass's share of the next blocks, a part of one with each block; the first rows have asked.
    const int first = kBlocks * index / passes,
              behind = pass.row > 0 ? first : kBlocks * (index + 1) / passes;
    if (behind > first) {
        prefetch_.set(args() + offsetof(PvArgs, next), first, behind);
        last_asked_ = prefetch_.turns_rest(first, behind, turns_of_end());
        if (turns_of_end() == 0) prefetch_.ask(last_asked_);
    }
    const int turns = this->turns();
    mov(count_, ptr[args() + offsetof(PvArgs, count)]);
    Label each_block;
    L(each_block);
    asked_ = prefetch_.turn_share(first, behind, turns_of_end());
    if (!asks_within()) prefetch_.ask(asked_);
    mov(block_, ptr[blocks_]);
    if (prefetch_.asks_again()) prefetch_.look_ahead(blocks_, count_, block_);
    if (turns > 1) mov(dwords_, turns);
    Label each_turn;  // a loop keeps the code small (jit/token_qk.cc)
    L(each_turn);
    if (!asks_within()) emit_own_ahead(pass, 0, 1);
    emit_tokens(acc, pass);
    if (turns > 1) add(block_, dwords_a_turn() * key_.dim * 4);
    if (weights_step() > 0) add(weights_, weights_step());
    if (takes_scales()) add(scales_, codes_.of_dword() * 4);
    if (turns > 1) {
        dec(dwords_);
        jnz(each_turn, T_NEAR);
    }
    const int of_weights = weights_of_block() - turns * weights_step(),
              of_scales = scales_of_block() - kBlockTokens * 4;
    if (of_weights != 0) add(weights_, of_weights);
    if (takes_scales() && of_scales != 0) add(scales_, of_scales);
    add(blocks_, 8 * kBlockTokens);
    sub(count_, kBlockTokens);
    jnz(each_block, T_NEAR);
    emit_end(acc, pass);
    free(acc);
}

void TokenPvPasses::emit_asks(const Pass& pass, int part, int parts) {
    prefetch_.ask(asked_, part, parts);
    emit_own_ahead(pass, part, parts);
}

// Lines that this kernel reads itself, once more.
void TokenPvPasses::emit_own_ahead(const Pass& pass, int part, int parts) {
    const int total = dwords_a_turn() * pass.width;
    const int first = total * part / parts, end = total * (part + 1) / parts;
    if (!prefetch_.asks_again() || first == end) return;
    const RegExp block = prefetch_.ahead(block_);
    for (int i = first; i < end; ++i)
        prefetcht0(ptr[block + i / pass.width * key_.dim * 4 + (pass.vec + i % pass.width) * lanes() * 4]);
}

}  // namespace quire::jit
