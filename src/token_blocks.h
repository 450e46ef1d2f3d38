// quire's own formats: the rows of 16 tokens of one kv head lie together, in the order in which decode's
// kernels read them. Codes and scales are those of plain rows (INT8, INT4): only their places differ.
#pragma once

#include "quire/quire.h"

namespace quire {

constexpr int kBlockTokens = 16;

enum class Side { key, value };

// A block is codes in dwords, N = 4 (8 bits) or 8 (4 bits) of them in each, then scales:
//   keys    uint32_t codes[D / N][16 tokens]    elements N i .. N i + N - 1 of a token, as in its plain row
//   values  uint32_t codes[16 / N][D]           an element of tokens N i .. N i + N - 1: value_place()
//   both    float16 scales[D / quant_group][16 tokens]
// quant_group is a multiple of 8 and divides D.
struct TokenBlockInfo {
    quire_type type;
    quire_type row_type;  // INT8 or INT4: of the plain row
    int code_bits;

    int codes_of_dword() const { return 32 / code_bits; }
    int row_bytes(int dim) const { return dim * code_bits / 8; }
    int code_bytes(int dim) const { return kBlockTokens * row_bytes(dim); }
    int bytes(int dim, int group) const { return code_bytes(dim) + kBlockTokens * 2 * (dim / group); }
    // Which of a dword's codes is that of token t % N. Pairs of tokens are half a dword apart, so that shifts
    // of 16-bit words bring them side by side: 0 2 1 3, or 0 4 1 5 2 6 3 7.
    int value_place(int t) const { return t / 2 + t % 2 * (codes_of_dword() / 2); }
    int token_of_place(int place) const {
        return place % (codes_of_dword() / 2) * 2 + place / (codes_of_dword() / 2);
    }

    // Tokens whose codes are brought into a block together: they share dwords, or fill four lanes.
    int placed_together(Side side) const { return side == Side::key ? 4 : codes_of_dword(); }
    // Byte of the first code of `token`, of the first element.
    int codes_at(Side side, int dim, int token) const {
        return (side == Side::key ? token : token / codes_of_dword() * dim) * 4;
    }
    // Of a plain row that is to be placed, its scales behind it.
    int placed_row_bytes(int dim, int group) const { return row_bytes(dim) + 2 * (dim / group); }
};

// Null for a type that is not of blocks of tokens.
const TokenBlockInfo* token_block_info(quire_type type);

// A plain row and its float16 scales, into or out of a block.
struct TokenBlockShape {
    Side side;
    int dim, group;
};
void place_scales(const TokenBlockInfo& info, const TokenBlockShape& shape, const void* scales, void* block,
                  int token);
void place_row(const TokenBlockInfo& info, const TokenBlockShape& shape, const void* row, const void* scales,
               void* block, int token);
void take_row(const TokenBlockInfo& info, const TokenBlockShape& shape, const void* block, int token,
              void* row, void* scales);

}  // namespace quire
