// Prefetches of tiles' products (args.h: LinesAhead).
#pragma once
#include <algorithm>
#include <cstddef>

#include "jit/args.h"
#include "jit/emitter.h"

namespace quire::jit {

// Its state lies below the stack pointer, in the 128 bytes that are a leaf function's own: products need the
// general registers.
class TileAhead {
public:
    explicit TileAhead(Emitter& e) : e_(e) {}

    // `args`: of the LinesAhead*. Behind Emitter::begin. Clobbers rax, as all do.
    void begin(const RegExp& args) {
        e_.mov(e_.rax, e_.ptr[args]);
        copy(kState, e_.rax);
    }
    // Before Emitter::end.
    void end(const RegExp& args) {
        e_.mov(e_.rax, e_.ptr[args]);
        copy(e_.rax, kState);
    }

    // What goes with so many multiplications, at least a line. Those behind the last line are that one again.
    void some(int multiplications) {
        for (int i = 0; i < std::max(1, multiplications / kOfALine); ++i) line();
    }

private:
    static constexpr int kOfALine = 48;  // 24 cycles where two start in one: some 10 bytes a nanosecond
    static constexpr int kLine = 64;
    const RegExp kState = Xbyak::util::rsp - 32;
    Address state(size_t member) const { return e_.ptr[kState + member]; }

    void copy(const RegExp& to, const RegExp& from) {
        static_assert(sizeof(LinesAhead) == 24);
        Temp v(e_, "ahead");
        const Xbyak::Xmm x((*v).getIdx());
        e_.vmovups(x, e_.ptr[from]);
        e_.vmovups(e_.ptr[to], x);
        e_.vmovq(x, e_.ptr[from + 16]);
        e_.vmovq(e_.ptr[to + 16], x);
    }

    void line() {
        Label write, asked, store, done;
        const Xbyak::Reg64& at = e_.rax;
        e_.mov(at, state(offsetof(LinesAhead, line)));
        e_.test(e_.al, uint8_t(kWritten));
        e_.jnz(write, e_.T_NEAR);
        e_.prefetcht1(e_.ptr[at]);
        e_.L(asked);
        e_.add(at, kLine);
        e_.cmp(at, state(offsetof(LinesAhead, end)));
        e_.jb(store, e_.T_NEAR);
        e_.mov(at, state(offsetof(LinesAhead, next)));
        e_.cmp(e_.qword[at], 0);
        e_.je(done, e_.T_NEAR);
        e_.add(e_.qword[kState + offsetof(LinesAhead, next)], sizeof(LineRun));
        e_.mov(at, e_.ptr[at + offsetof(LineRun, end)]);
        e_.mov(state(offsetof(LinesAhead, end)), at);
        e_.mov(at, state(offsetof(LinesAhead, next)));
        e_.mov(at, e_.ptr[at - int(sizeof(LineRun))]);
        e_.L(store);
        e_.mov(state(offsetof(LinesAhead, line)), at);
        e_.jmp(done, e_.T_NEAR);
        e_.L(write);
        e_.prefetchw(e_.ptr[at]);
        e_.jmp(asked, e_.T_NEAR);
        e_.L(done);
    }

    Emitter& e_;
};

}  // namespace quire::jit
