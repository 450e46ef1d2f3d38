// Loops that nothing but one kind of instruction bounds, generated for the widest vectors that a target of
// quire has.
#pragma once
#include <cstdint>
#include <string>

namespace bench {

enum class LimitLoop {
    fma,     // float32, an FMA counts as two operations a lane
    dot16,   // products of 16-bit integers added up in 32 bits
    dot8,    // products of 8-bit integers added up in 32 bits
    bf16,    // products of bfloat16 added up in float32
    cycles,  // a chain of multiplications whose latency is known
};

struct LimitCode {
    double work;            // operations (cycles) of a round; 0 where there is no such instruction
    void (*run)(uint64_t);  // so many rounds
};
// target: a name of quire_target_name, whose vectors and instructions it has; empty: all that the machine
// has.
LimitCode limit_code(LimitLoop loop, const std::string& target);

}  // namespace bench
