#include "src/token_blocks.h"

#include <cstring>

namespace quire {
namespace {

constexpr TokenBlockInfo kTokenBlocks[] = {{QUIRE_INT8_B16, QUIRE_INT8, 8}, {QUIRE_INT4_B16, QUIRE_INT4, 4}};

constexpr int kDword = 4, kHalf = 2, kMostDim = 1024;

// Of element d of a value's token: its byte in the block, and whether that is the byte's high nibble.
struct Place {
    int byte;
    bool high;
};
Place value_at(const TokenBlockInfo& info, int dim, int token, int d) {
    const int n = info.codes_of_dword(), place = info.value_place(token % n);
    return {(token / n * dim + d) * kDword + place * info.code_bits / 8, place * info.code_bits % 8 != 0};
}

void set_nibble(uint8_t* byte, bool high, int code) {
    *byte = high ? uint8_t((*byte & 0x0f) | code << 4) : uint8_t((*byte & 0xf0) | code);
}

int nibble(const uint8_t* byte, bool high) { return high ? *byte >> 4 : *byte & 15; }

// A code into the same bits of each dword. Whole dwords, which compilers do several at a time.
void set_codes(uint8_t* __restrict to, const uint8_t* __restrict codes, int count, int bits, int place) {
    const uint32_t others = ~(((1u << bits) - 1) << (bits * place));
    for (int i = 0; i < count; ++i) {
        uint32_t dword = 0;
        std::memcpy(&dword, to + i * kDword, kDword);
        dword = (dword & others) | uint32_t(codes[i]) << (bits * place);
        std::memcpy(to + i * kDword, &dword, kDword);
    }
}

void place_value(const TokenBlockInfo& info, int dim, const uint8_t* row, uint8_t* block, int token) {
    const int n = info.codes_of_dword();
    uint8_t nibbles[kMostDim];
    if (info.code_bits == 4)
        for (int i = 0; i < dim / 2; ++i) {
            nibbles[2 * i] = row[i] & 15;
            nibbles[2 * i + 1] = row[i] >> 4;
        }
    set_codes(block + token / n * dim * kDword, info.code_bits == 4 ? nibbles : row, dim, info.code_bits,
              info.value_place(token % n));
}

}  // namespace

const TokenBlockInfo* token_block_info(quire_type type) {
    for (const TokenBlockInfo& info : kTokenBlocks)
        if (info.type == type) return &info;
    return nullptr;
}

void place_row(const TokenBlockInfo& info, const TokenBlockShape& shape, const void* row, const void* scales,
               void* block, int token) {
    const auto* from = static_cast<const uint8_t*>(row);
    auto* to = static_cast<uint8_t*>(block);
    if (shape.side == Side::key) {
        for (int i = 0; i * kDword < info.row_bytes(shape.dim); ++i)
            std::memcpy(to + (i * kBlockTokens + token) * kDword, from + i * kDword, kDword);
    } else {
        place_value(info, shape.dim, from, to, token);
    }
    place_scales(info, shape, scales, block, token);
}

void place_scales(const TokenBlockInfo& info, const TokenBlockShape& shape, const void* scales, void* block,
                  int token) {
    auto* to = static_cast<uint8_t*>(block) + info.code_bytes(shape.dim) + token * kHalf;
    for (int g = 0; g < shape.dim / shape.group; ++g)
        std::memcpy(to + g * kBlockTokens * kHalf, static_cast<const uint8_t*>(scales) + g * kHalf, kHalf);
}

void take_row(const TokenBlockInfo& info, const TokenBlockShape& shape, const void* block, int token,
              void* row, void* scales) {
    const auto* from = static_cast<const uint8_t*>(block);
    auto* to = static_cast<uint8_t*>(row);
    if (shape.side == Side::key) {
        for (int i = 0; i * kDword < info.row_bytes(shape.dim); ++i)
            std::memcpy(to + i * kDword, from + (i * kBlockTokens + token) * kDword, kDword);
    } else {
        for (int d = 0; d < shape.dim; ++d) {
            const Place at = value_at(info, shape.dim, token, d);
            info.code_bits == 8 ? void(to[d] = from[at.byte])
                                : set_nibble(to + d / 2, d % 2 != 0, nibble(from + at.byte, at.high));
        }
    }
    from += info.code_bytes(shape.dim) + token * kHalf;
    for (int g = 0; g < shape.dim / shape.group; ++g)
        std::memcpy(static_cast<uint8_t*>(scales) + g * kHalf, from + g * kBlockTokens * kHalf, kHalf);
}

}  // namespace quire
