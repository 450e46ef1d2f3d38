// Instruction-set tiers. Vector width and features are two axes; a row of the table is one point of them.
#pragma once
#include <string>

#include "src/status.h"

namespace quire {

struct Target {
    const char* name;
    int vector_bits;  // 0: portable, no generated code
    bool vnni;        // vpdpbusd at that width
    bool vbmi;        // vpermb, vpermi2b
    bool bf16;        // vdpbf16ps
    bool amx;         // tiles of bfloat16 numbers, and of bytes; vpshrdw
    const char* why;

    bool jit() const { return vector_bits != 0; }
    int lanes() const { return vector_bits / 32; }
    int num_vecs() const { return vector_bits == 512 ? 32 : 16; }
    // Whose cores run it where ways differ: of AVX-512 AMD's (Zen 4, 5) have quick products of bfloat16,
    // Intel's none, or those of tiles.
    bool of_intel() const { return vector_bits == 512 && (!bf16 || amx); }
};

// The table, slowest first; count rows.
const Target* target_table(int* count);
const Target* find_target(const std::string& name);

// Whether the first-level data cache has 48 KB or more; the second-level one of a core 1 MB.
bool has_large_l1();
bool has_large_l2();
void assume_large_l2(bool large);  // for tests: from the next call on

// Best target that CPUID and XCR0 of this machine allow, and the one that is quickest on it: not that of
// bfloat16 on Intel's cores without AMX, where a product of it takes four times as long as one of float32,
// for two. AMX needs Linux's leave for the process, which is asked for.
const Target* machine_target();
const Target* quickest_target();

// The same without tiles of AMX: of what multiplies few rows.
const Target& without_tiles(const Target& target);

// The best target of the machine that is not above `cap` (a name; null: QUIRE_TARGET, or the quickest).
Status resolve_target(const char* cap, const Target** target);

}  // namespace quire
