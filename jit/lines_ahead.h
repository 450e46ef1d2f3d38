// Lines of memory that tiles' kernels ask for, one at a time all through their work: a processor tracks only
// so many misses at once, and waits when there are more.
#pragma once
#include <cstdint>

namespace quire::jit {

constexpr uintptr_t kWritten = 1;      // they are going to be
constexpr uintptr_t kSecondLevel = 2;  // come into that cache alone, as the first has no room for them
constexpr uintptr_t kLineBytes = 64;
struct LineRun {
    uintptr_t begin, end;  // begin: of a line, + what of the above it is
};
struct LinesAhead {
    uintptr_t line, end;  // the line to ask for next, and the end of its run
    const LineRun* next;  // the runs that follow; behind the last one: {0, 0}
    uintptr_t step;       // kLineBytes, or 0 behind the last line, which is then asked for again and again
};

}  // namespace quire::jit
