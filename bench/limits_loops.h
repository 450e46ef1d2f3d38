// Loops that nothing but one kind of instruction bounds, generated for the widest vectors of the machine.
#pragma once
#include <cstdint>

namespace bench {

enum class LimitLoop {
    fma,     // float32, an FMA counts as two operations a lane
    dot16,   // products of 16-bit integers added up in 32 bits
    dot8,    // products of 8-bit integers added up in 32 bits
    cycles,  // a chain of multiplications whose latency is known
};

// Operations (cycles) of a round; 0 where the machine has no such instruction.
double loop_work(LimitLoop loop);
void run_loop(LimitLoop loop, uint64_t rounds);

}  // namespace bench
