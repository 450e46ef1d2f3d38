// ggml's block formats: 32 values of a row lie together with their scale d and, in some, a minimum m (both
// float16). One table says where; encode, decode and generated code read it.
#pragma once
#include <cstdint>

#include "quire/quire.h"

namespace quire {

constexpr int kBlockValues = 32;

// A block: d, then m, the fifth bits and the codes, each where the format has it. Codes of four bits: value j
// is in the low nibble of byte j, value j + 16 in the high one. A value is d * (code - zero) + m, or d *
// table[code].
struct BlockInfo {
    quire_type type;
    int bytes;
    bool has_min;
    int code_bits;        // 8 (signed), or 4
    int high_bits_at;     // byte where bit j is the fifth of code j; 0: none
    int codes_at;         // byte
    int zero;             // the code that means 0
    const int8_t* table;  // [16] or null

    int numbers() const { return has_min ? 2 : 1; }  // float16 ones at the block's begin
    int levels() const { return code_bits == 8 ? 256 : high_bits_at ? 32 : 16; }
};

// Null for a type that is not of blocks.
const BlockInfo* block_info(quire_type type);

// A block's code as it is stored: int8, or 0..31.
int load_block_code(const BlockInfo& info, const uint8_t* block, int j);

// Rows of whole blocks. Encoding is ggml's, iq4_nl without its search for a better scale.
void decode_blocks(const BlockInfo& info, int dim, const void* row, float* values);
void encode_blocks(const BlockInfo& info, int dim, const float* values, void* row);

}  // namespace quire
