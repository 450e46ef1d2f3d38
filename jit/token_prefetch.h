// Prefetches of the next blocks of tokens (args.h: NextRows), line by line in the order of memory: from DRAM
// one stream is faster than two side by side. But on Intel's cores several are faster (jit/prefetch.h): there
// a step asks for a line at each of as many places of the list, or of memory where its blocks follow each
// other. And prefetches of a kernel's own blocks once more.
#pragma once
#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"
#include "src/token_blocks.h"

namespace quire::jit {

class TokenPrefetch {
public:
    // What a part of a kernel asks for: lines in the order of memory, or steps.
    struct Share {
        int lines = 0, steps = 0;
    };

    // room: the kernel has a register more to spare.
    TokenPrefetch(Emitter& e, const RowKey& key, bool room = true)
        : e_(e),
          block_bytes_(block_bytes(key.format, key.dim)),
          places_(key.target->of_intel() ? places(block_bytes_) : 1),
          near_(key.target->vector_bits == 512 && !key.target->of_intel()),
          again_(room && key.target->vector_bits == 512 &&
                 bytes_of(row_format(key.format).type, key.dim) >= kLine),
          list_(e.gpr("next blocks")),
          line_(e.gpr("next line")),
          end_(places_ > 1 ? Gpr() : e.gpr("its block's end")),
          ahead_(again_ ? e.gpr("to the block ahead") : Gpr()) {}

    // Of so many blocks, what each of `parts` parts asks for, and what is left.
    Share share(int blocks, int parts) const { return {blocks * lines() / parts, steps(blocks) / parts}; }
    Share rest(int blocks, int parts) const { return {blocks * lines() % parts, steps(blocks) % parts}; }

    // Of the blocks from `begin` to `end` of the list with each of kBlocks turns, and what is left of steps.
    // Lines go a little beyond the ends of blocks that several turns share.
    Share turn_share(int begin, int end, int more = 0) const {
        if (begin == end) return {};
        const int turns = turns_a_block(begin, end);
        return {(lines() + turns - 1) / turns, (steps(end) - steps(begin)) / (kBlocks + more)};
    }
    Share turns_rest(int begin, int end, int more = 0) const {
        const int all = steps(end) - steps(begin), each = all / (kBlocks + more);
        return {0, all - each * kBlocks};
    }

    // `next`: of the NextRows. Begins with block `begin` of the list; up to `end` turns share blocks.
    void set(const RegExp& next, int begin = 0, int end = kBlocks) {
        const int turns = turns_a_block(begin, end);
        asked_ = turns * turn_share(begin, end).lines;
        rows_at_ = next + offsetof(NextRows, rows);
        e_.mov(list_, e_.ptr[rows_at_]);
        near_at_ = next + offsetof(NextRows, near);
        together_at_ = next + offsetof(NextRows, together);
        if (places_ == 1) return begin_block(begin);
        Label apart, done;
        e_.cmp(e_.qword[together_at_], 0);
        e_.je(apart);
        e_.mov(line_, e_.ptr[list_]);
        if (begin > 0) e_.add(line_, steps(begin) * kLine);
        e_.jmp(done);
        e_.L(apart);
        if (begin > 0) e_.add(list_, steps(begin) / lines() * kNextBlock);
        e_.mov(line_, steps(begin) % lines() * kLine);
        e_.L(done);
    }

    // Part `part` of `parts` of a share; where a block ends among its lines, the next one is begun with the
    // next lines.
    void ask(const Share& share, int part = 0, int parts = 1) {
        if (places_ > 1) return ask_steps(of(share.steps, part, parts));
        ask_lines(of(share.lines, part, parts));
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
    static constexpr int kLine = 64, kBlocks = kBlock / kBlockTokens, kNextBlock = 8 * kBlockTokens;
    static constexpr int kAhead = kBlock / 4;  // tokens

    // A page of 4 KB or more for each.
    static int places(int64_t bytes) {
        constexpr int kPage = 4096, kMost = 4;
        int places = 1;
        while (places < kMost && kBlocks * bytes >= 2 * places * kPage) places *= 2;
        return places;
    }
    static int of(int all, int part, int parts) { return (part + 1) * all / parts - part * all / parts; }
    static int turns_a_block(int begin, int end) { return (kBlocks + end - begin - 1) / (end - begin); }
    int lines() const { return int((block_bytes_ + kLine - 1) / kLine); }  // of a block
    int steps(int blocks) const { return (blocks * lines() + places_ - 1) / places_; }

    void begin_block(int block) {
        if (block != 0) e_.add(list_, block * kNextBlock);
        e_.mov(line_, e_.ptr[list_]);
        e_.lea(end_, e_.ptr[line_ + asked_ * kLine]);
    }
    void ask_lines(int count) {
        if (count == 0) return;
        Label within;
        e_.cmp(line_, end_);
        e_.jb(within);
        begin_block(1);
        e_.L(within);
        Label far, done;
        if (near_) {
            e_.cmp(e_.qword[near_at_], 0);
            e_.je(far);
            for (int i = 0; i < count; ++i) e_.prefetcht0(e_.ptr[line_ + i * kLine]);
            e_.jmp(done);
        }
        e_.L(far);
        for (int i = 0; i < count; ++i) e_.prefetcht1(e_.ptr[line_ + i * kLine]);
        e_.L(done);
        e_.add(line_, count * kLine);
    }
    // line_: the first place's next line, or where blocks do not follow each other, how far into its block
    // each place is. Clobbers rax.
    void ask_steps(int count) {
        if (count == 0) return;
        const int of_place = kBlocks / places_;
        Label apart, within, done;
        e_.cmp(e_.qword[together_at_], 0);
        e_.je(apart);
        for (int i = 0; i < count; ++i)
            for (int place = 0; place < places_; ++place)
                e_.prefetcht1(e_.ptr[line_ + place * of_place * block_bytes_ + i * kLine]);
        e_.jmp(done);
        e_.L(apart);
        e_.cmp(line_, lines() * kLine);
        e_.jb(within);
        e_.xor_(line_, line_);
        e_.mov(e_.rax, e_.ptr[rows_at_]);
        e_.add(e_.rax, (of_place - 1) * kNextBlock);
        e_.cmp(list_, e_.rax);  // steps are rounded up: the last block's are the last
        e_.jae(within);
        e_.add(list_, kNextBlock);
        e_.L(within);
        for (int place = 0; place < places_; ++place) {
            e_.mov(e_.rax, e_.ptr[list_ + place * of_place * kNextBlock]);
            for (int i = 0; i < count; ++i) e_.prefetcht1(e_.ptr[e_.rax + line_ + i * kLine]);
        }
        e_.L(done);
        e_.add(line_, count * kLine);
    }

    Emitter& e_;
    const int block_bytes_;
    const int places_;  // of blocks that follow each other, whose lines a step asks for
    const bool near_;   // lines may go into the first level
    const bool again_;  // and are asked for again
    int asked_ = 0;     // lines of a block
    RegExp rows_at_, near_at_, together_at_;
    const Gpr list_, line_, end_, ahead_;
};

}  // namespace quire::jit
