#include "src/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/half.h"

namespace quire {
namespace {

constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

constexpr BlockInfo kBlocks[] = {
    // type       bytes  min  bits  high codes zero  table
    {QUIRE_Q8_0, 34, false, 8, 0, 2, 0, nullptr}, {QUIRE_Q4_0, 18, false, 4, 0, 2, 8, nullptr},
    {QUIRE_Q4_1, 20, true, 4, 0, 4, 0, nullptr},  {QUIRE_Q5_0, 22, false, 4, 2, 6, 16, nullptr},
    {QUIRE_Q5_1, 24, true, 4, 4, 8, 0, nullptr},  {QUIRE_IQ4_NL, 18, false, 4, 0, 2, 0, kIq4Nl},
};

float load_half(const uint8_t* at) {
    uint16_t half = 0;
    std::memcpy(&half, at, sizeof half);
    return half_to_float(half);
}

void store_half(uint8_t* at, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(at, &half, sizeof half);
}

void store_block_code(const BlockInfo& info, uint8_t* block, int j, int code) {
    uint8_t* codes = block + info.codes_at;
    if (info.code_bits == 8) {
        codes[j] = uint8_t(code);
        return;
    }
    codes[j % 16] = uint8_t(codes[j % 16] | (code & 15) << (j / 16 * 4));
    if (info.high_bits_at)
        block[info.high_bits_at + j / 8] = uint8_t(block[info.high_bits_at + j / 8] | (code >> 4) << (j % 8));
}

int nearest(const int8_t* table, float x) {
    int best = 0;
    for (int i = 1; i < 16; ++i)
        if (std::fabs(x - float(table[i])) < std::fabs(x - float(table[best]))) best = i;
    return best;
}

// Scale and minimum that bring the block's values onto the codes.
void choose_scale(const BlockInfo& info, const float* x, float* d, float* m) {
    float largest = 0;  // by magnitude, with its sign
    for (int j = 0; j < kBlockValues; ++j)
        if (std::fabs(x[j]) > std::fabs(largest)) largest = x[j];
    const auto [low, high] = std::minmax_element(x, x + kBlockValues);
    *m = info.has_min ? *low : 0;
    if (info.has_min)
        *d = (*high - *low) / float(info.levels() - 1);
    else if (info.code_bits == 8)
        *d = std::fabs(largest) / 127;
    else
        *d = largest / float(info.table ? info.table[0] : -info.zero);
}

int encode_value(const BlockInfo& info, float scaled) {
    if (info.table) return nearest(info.table, scaled);
    if (info.code_bits == 8) return int(std::round(scaled));
    return std::clamp(int(scaled + float(info.zero) + 0.5f), 0, info.levels() - 1);
}

}  // namespace

const BlockInfo* block_info(quire_type type) {
    for (const BlockInfo& info : kBlocks)
        if (info.type == type) return &info;
    return nullptr;
}

int load_block_code(const BlockInfo& info, const uint8_t* block, int j) {
    const uint8_t* codes = block + info.codes_at;
    if (info.code_bits == 8) return int8_t(codes[j]);
    const int nibble = codes[j % 16] >> (j / 16 * 4) & 15;
    if (!info.high_bits_at) return nibble;
    return nibble | (block[info.high_bits_at + j / 8] >> (j % 8) & 1) << 4;
}

void decode_blocks(const BlockInfo& info, int dim, const void* row, float* values) {
    const auto* block = static_cast<const uint8_t*>(row);
    for (int begin = 0; begin < dim; begin += kBlockValues, block += info.bytes) {
        const float d = load_half(block);
        for (int j = 0; j < kBlockValues; ++j) {
            const int code = load_block_code(info, block, j);
            const float product = d * float(info.table ? info.table[code] : code - info.zero);
            values[begin + j] = info.has_min ? product + load_half(block + 2) : product;
        }
    }
}

void encode_blocks(const BlockInfo& info, int dim, const float* values, void* row) {
    auto* block = static_cast<uint8_t*>(row);
    for (int begin = 0; begin < dim; begin += kBlockValues, block += info.bytes) {
        float d = 0, m = 0;
        choose_scale(info, values + begin, &d, &m);
        std::memset(block, 0, size_t(info.bytes));
        store_half(block, d);
        if (info.has_min) store_half(block + 2, m);
        const float inverse = d != 0 ? 1 / d : 0;
        for (int j = 0; j < kBlockValues; ++j)
            store_block_code(info, block, j, encode_value(info, (values[begin + j] - m) * inverse));
    }
}

}  // namespace quire
