// Prefetches of the next blocks of tokens (args.h: NextRows), line by line in the order of memory: from DRAM
// one stream is faster than two side by side. And of a kernel's own blocks once more (jit/prefetch.h).
#pragma once
#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"
#include "src/token_blocks.h"

namespace quire::jit {

class TokenPrefetch {
public:
    // room: the kernel has a register more to spare.
    TokenPrefetch(Emitter& e, const RowKey& key, bool room = true)
        : e_(e),
          lines_((block_bytes(key.format, key.dim) + kLine - 1) / kLine),
          quick_(key.target->vector_bits == 512 && (!key.target->of_intel() || is_quick(key))),
          again_(room && quick_ && bytes_of(row_format(key.format).type, key.dim) >= kLine),
          list_(e.gpr("next blocks")),
          line_(e.gpr("next line")),
          end_(e.gpr("its block's end")),
          ahead_(again_ ? e.gpr("to the block ahead") : Gpr()) {}

    int lines() const { return lines_; }  // of a block

    // `next`: of the NextRows. Begins with block `block` of the list. Blocks are asked for in so many parts
    // of part_lines(), which may go a little beyond their ends, or in any others, whose last one may.
    int part_lines(int parts) const { return (lines_ + parts - 1) / parts; }
    void set(const RegExp& next, int block, int parts = 1) {
        asked_ = parts * part_lines(parts);
        e_.mov(list_, e_.ptr[next + offsetof(NextRows, rows)]);
        near_ = next + offsetof(NextRows, near);
        begin(block);
    }

    // So many lines; where a block ends among them, the next one is begun with the next lines.
    void ask(int count) {
        if (count == 0) return;
        Label within;
        e_.cmp(line_, end_);
        e_.jb(within);
        begin(1);
        e_.L(within);
        Label far, done;
        if (quick_) {
            e_.cmp(e_.qword[near_], 0);
            e_.je(far);
            for (int i = 0; i < count; ++i) e_.prefetcht0(e_.ptr[line_ + i * kLine]);
            e_.jmp(done);
        }
        e_.L(far);
        for (int i = 0; i < count; ++i) e_.prefetcht1(e_.ptr[line_ + i * kLine]);
        e_.L(done);
        e_.add(line_, count * kLine);
    }

    // Whether a kernel is to ask again for its own blocks, as Prefetch::again does for rows: of tokens of a
    // line or more; of fewer bytes it was not measured.
    bool asks_again() const { return again_; }

    // blocks: the list, from `block` on; left: its tokens from there on. Behind the last, a block is its own.
    void look_ahead(const Gpr& blocks, const Gpr& left, const Gpr& block) {
        Label last;
        e_.xor_(ahead_, ahead_);
        e_.cmp(left, kAhead);
        e_.jle(last);
        e_.mov(ahead_, e_.ptr[blocks + 8 * kAhead]);
        e_.sub(ahead_, block);
        e_.L(last);
    }
    // Where the block ahead has what this one has at `at`. Clobbers rax.
    RegExp ahead(const RegExp& at) {
        e_.lea(e_.rax, e_.ptr[at + ahead_]);
        return e_.rax;
    }

private:
    static constexpr int kLine = 64, kAhead = kBlock / 4;  // tokens

    void begin(int blocks) {
        if (blocks != 0) e_.add(list_, blocks * 8 * kBlockTokens);
        e_.mov(line_, e_.ptr[list_]);
        e_.lea(end_, e_.ptr[line_ + asked_ * kLine]);
    }

    // Kernels that multiply numbers, or three digits, seemed to take longer than memory does. On Zen 5 they
    // gain, too (docs/performance.md, "What a plain read is"); on Intel's cores that was not measured.
    static bool is_quick(const RowKey& key) {
        return key.words() || key.products == Products::bytes || key.products == Products::two_bytes;
    }

    Emitter& e_;
    const int lines_;
    const bool quick_;  // lines go into the first level, where that is large, and are asked for again
    const bool again_;
    int asked_ = 0;  // lines
    RegExp near_;
    const Gpr list_, line_, end_, ahead_;
};

}  // namespace quire::jit
