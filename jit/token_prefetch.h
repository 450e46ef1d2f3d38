// Prefetches of the next blocks of tokens (args.h: NextRows), line by line in the order of memory: from DRAM
// one stream is faster than two side by side.
#pragma once
#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class TokenPrefetch {
public:
    TokenPrefetch(Emitter& e, const RowKey& key)
        : e_(e),
          lines_((block_bytes(key.format, key.dim) + kLine - 1) / kLine),
          list_(e.gpr("next blocks")),
          line_(e.gpr("next line")),
          end_(e.gpr("its block's end")) {}

    int lines() const { return lines_; }  // of a block

    // Begins with block `block` of the list whose address is at `list`. Blocks are asked for in so many parts
    // of part_lines(), which may go a little beyond their ends, or in any others, whose last one may.
    int part_lines(int parts) const { return (lines_ + parts - 1) / parts; }
    void set(const RegExp& list, int block, int parts = 1) {
        asked_ = parts * part_lines(parts);
        e_.mov(list_, e_.ptr[list]);
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
        for (int i = 0; i < count; ++i) e_.prefetcht1(e_.ptr[line_ + i * kLine]);
        e_.add(line_, count * kLine);
    }

private:
    static constexpr int kLine = 64;

    void begin(int blocks) {
        if (blocks != 0) e_.add(list_, blocks * 8 * kBlockTokens);
        e_.mov(line_, e_.ptr[list_]);
        e_.lea(end_, e_.ptr[line_ + asked_ * kLine]);
    }

    Emitter& e_;
    const int lines_;
    int asked_ = 0;  // lines
    const Gpr list_, line_, end_;
};

}  // namespace quire::jit
