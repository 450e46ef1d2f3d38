// Prefetches of tiles' products, and of packing for AMX (jit/lines_ahead.h).
#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>

#include "jit/args.h"
#include "jit/emitter.h"

namespace quire::jit {

// The line is in a register, and what seldom happens behind the kernel: where threads share a core, every
// other instruction and every jump that is taken costs products their time. The rest of the state lies below
// the stack pointer, in the 128 bytes that are a leaf function's own: most kernels need the other registers.
class TileAhead {
public:
    TileAhead(Emitter& e, const Target& target)
        : e_(e), near_(target.vector_bits == 512 && !target.of_intel()) {}

    // `args`: of the LinesAhead*. Behind Emitter::begin, when the kernel has the registers that it needs.
    // Clobbers rax, as end() does, but some() does not.
    void begin(const RegExp& args) {
        line_ = e_.gpr("line ahead");
        e_.mov(e_.rax, e_.ptr[args]);
        copy(kState, e_.rax);
        e_.mov(line_, state(offsetof(LinesAhead, line)));
    }
    // Before Emitter::end.
    void end(const RegExp& args) {
        e_.mov(state(offsetof(LinesAhead, line)), line_);
        e_.mov(e_.rax, e_.ptr[args]);
        copy(e_.rax, kState);
        Label behind;
        e_.jmp(behind, e_.T_NEAR);
        e_.stage("lines ahead");
        for (Line& line : lines_) emit_seldom(line);
        e_.L(behind);
    }

    // What goes with so many multiplications, at least a line.
    void some(int multiplications) {
        for (int i = 0; i < std::max(1, multiplications / kOfALine); ++i) line();
    }
    void line() { emit_line(lines_.emplace_back()); }

private:
    struct Line {
        Label other, asked, next, done;
    };
    static constexpr int kOfALine = 48;  // 24 cycles where two start in one: some 10 bytes a nanosecond
    const RegExp kState = Xbyak::util::rsp - int(sizeof(LinesAhead));
    Address state(size_t member) const { return e_.qword[kState + member]; }

    void copy(const RegExp& to, const RegExp& from) {
        static_assert(sizeof(LinesAhead) == 32);
        Temp v(e_, "ahead");
        const Xbyak::Ymm y((*v).getIdx());
        e_.vmovups(y, e_.ptr[from]);
        e_.vmovups(e_.ptr[to], y);
    }

    void emit_line(Line& line) {
        e_.test(line_.cvt8(), uint8_t(near_ ? kWritten | kSecondLevel : kWritten));
        e_.jnz(line.other, e_.T_NEAR);
        near_ ? e_.prefetcht0(e_.ptr[line_]) : e_.prefetcht1(e_.ptr[line_]);
        e_.L(line.asked);
        e_.add(line_, state(offsetof(LinesAhead, step)));
        e_.cmp(line_, state(offsetof(LinesAhead, end)));
        e_.jae(line.next, e_.T_NEAR);
        e_.L(line.done);
    }

    void emit_seldom(Line& line) {
        e_.L(line.other);
        if (near_) {
            Label written;
            e_.test(line_.cvt8(), uint8_t(kWritten));
            e_.jnz(written);
            e_.prefetcht1(e_.ptr[line_]);
            e_.jmp(line.asked, e_.T_NEAR);
            e_.L(written);
        }
        e_.prefetchw(e_.ptr[line_]);
        e_.jmp(line.asked, e_.T_NEAR);
        e_.L(line.next);
        emit_next_run(line.done);
    }

    // No register but the line's is free.
    void emit_next_run(const Label& done) {
        Label last;
        e_.mov(state(offsetof(LinesAhead, line)), line_);
        e_.mov(line_, state(offsetof(LinesAhead, next)));
        e_.cmp(e_.qword[line_ + offsetof(LineRun, begin)], 0);
        e_.je(last);
        e_.mov(line_, e_.ptr[line_ + offsetof(LineRun, end)]);
        e_.mov(state(offsetof(LinesAhead, end)), line_);
        e_.mov(line_, state(offsetof(LinesAhead, next)));
        e_.mov(line_, e_.ptr[line_ + offsetof(LineRun, begin)]);
        e_.add(state(offsetof(LinesAhead, next)), sizeof(LineRun));
        e_.jmp(done, e_.T_NEAR);
        e_.L(last);
        e_.mov(line_, state(offsetof(LinesAhead, line)));
        e_.sub(line_, int(kLineBytes));
        e_.mov(state(offsetof(LinesAhead, end)), -1);
        e_.mov(state(offsetof(LinesAhead, step)), 0);
        e_.jmp(done, e_.T_NEAR);
    }

    Emitter& e_;
    const bool near_;  // into the first level, too: on Zen 5 lines for the second alone may not stay there
    Gpr line_;         // of begin()
    std::deque<Line> lines_;
};

}  // namespace quire::jit
