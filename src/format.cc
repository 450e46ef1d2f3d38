#include "src/format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "src/half.h"

namespace quire {
namespace {

constexpr FormatInfo kFormats[] = {
    {QUIRE_F32, "f32", 0, "exact"},
    {QUIRE_F16, "f16", 0, "half the bytes, no scales"},
    {QUIRE_BF16, "bf16", 0, "half the bytes, the range of f32"},
    {QUIRE_INT8, "int8", 127, "a quarter of the bytes, error near f16 attention"},
    {QUIRE_INT4, "int4", 7, "an eighth of the bytes"},
    {QUIRE_Q8_0, "q8_0", 0, "ggml's: caches of llama.cpp"},
    {QUIRE_Q4_0, "q4_0", 0, "ggml's"},
    {QUIRE_Q4_1, "q4_1", 0, "ggml's, with a minimum"},
    {QUIRE_Q5_0, "q5_0", 0, "ggml's"},
    {QUIRE_Q5_1, "q5_1", 0, "ggml's, with a minimum"},
    {QUIRE_IQ4_NL, "iq4_nl", 0, "ggml's, codes at unequal distances"},
    {QUIRE_INT8_B16, "int8_b16", 0, "int8 of 16 tokens in the order that decode reads"},
    {QUIRE_INT4_B16, "int4_b16", 0, "int4 of 16 tokens"},
};

constexpr float kSmallestScale = 1e-5f;

}  // namespace

const FormatInfo* format_table(size_t* count) {
    *count = std::size(kFormats);
    return kFormats;
}

const FormatInfo* format_info(quire_type type) {
    for (const FormatInfo& info : kFormats)
        if (info.type == type) return &info;
    return nullptr;
}

const char* type_name(quire_type type) {
    if (const FormatInfo* info = format_info(type)) return info->name;
    switch (type) {
        case QUIRE_INT64: return "int64";
        case QUIRE_INT32: return "int32";
        case QUIRE_BOOL: return "bool";
        default: return "none";
    }
}

int type_bits(quire_type type) {
    switch (type) {
        case QUIRE_INT64: return 64;
        case QUIRE_F32:
        case QUIRE_INT32: return 32;
        case QUIRE_F16:
        case QUIRE_BF16: return 16;
        case QUIRE_INT8:
        case QUIRE_INT8_B16:
        case QUIRE_INT4_B16:
        case QUIRE_BOOL: return 8;
        case QUIRE_INT4: return 4;
        default: return 0;
    }
}

TypeSize type_size(quire_type type) {
    if (const BlockInfo* block = block_info(type)) return {kBlockValues, block->bytes};
    const int bits = type_bits(type);
    if (bits == 0) return {0, 0};
    return bits < 8 ? TypeSize{8 / bits, 1} : TypeSize{1, bits / 8};
}

bool is_of_nibbles(const quire_format& f) {
    const BlockInfo* block = block_info(f.type);
    return block ? block->code_bits == 4 : f.type == QUIRE_INT4;
}

bool has_two_parts(const quire_format& f) {
    const BlockInfo* block = block_info(f.type);
    return is_of_nibbles(f) && !(block && block->high_bits_at);
}

bool has_small_numbers(const quire_format& f) {
    const BlockInfo* block = block_info(f.type);
    return has_two_parts(f) && !(block && block->table);
}

std::string format_names() {
    std::string names;
    for (const FormatInfo& info : kFormats) {
        const bool first = &info == kFormats, last = &info + 1 == std::end(kFormats);
        names += std::string(first ? "" : last ? " or " : ", ") + info.name;
    }
    return names;
}

std::string format_name(const quire_format& format) {
    std::string name = type_name(format.type);
    if (is_quantised(format) || token_block_info(format.type))
        name += "_gr" + std::to_string(format.quant_group) + "_" + type_name(format.scale_type);
    return name;
}

float load_number(quire_type type, const void* base, int64_t i) {
    switch (type) {
        case QUIRE_F16: return half_to_float(static_cast<const UnalignedHalf*>(base)[i]);
        case QUIRE_BF16: return bfloat_to_float(static_cast<const UnalignedHalf*>(base)[i]);
        default: return static_cast<const UnalignedFloat*>(base)[i];
    }
}

void load_numbers(quire_type type, const void* base, int count, float* out) {
    // A loop for each type, which compilers make vectors of. (`auto` would drop the alignment.)
    const UnalignedHalf* halves = static_cast<const UnalignedHalf*>(base);
    switch (type) {
        case QUIRE_F16:
            for (int i = 0; i < count; ++i) out[i] = half_to_float(halves[i]);
            break;
        case QUIRE_BF16:
            for (int i = 0; i < count; ++i) out[i] = bfloat_to_float(halves[i]);
            break;
        default: std::memcpy(out, base, size_t(count) * sizeof(float));
    }
}

void store_number(quire_type type, void* base, int64_t i, float value) {
    switch (type) {
        case QUIRE_F16: static_cast<UnalignedHalf*>(base)[i] = float_to_half(value); break;
        case QUIRE_BF16: static_cast<UnalignedHalf*>(base)[i] = float_to_bfloat(value); break;
        default: static_cast<UnalignedFloat*>(base)[i] = value;
    }
}

float round_to(quire_type type, float value) {
    switch (type) {
        case QUIRE_F16: return half_to_float(float_to_half(value));
        case QUIRE_BF16: return bfloat_to_float(float_to_bfloat(value));
        default: return value;
    }
}

int load_code(quire_type type, const void* row, int64_t i) {
    if (type == QUIRE_INT8) return static_cast<const int8_t*>(row)[i];
    const uint8_t byte = static_cast<const uint8_t*>(row)[i / 2];
    const int nibble = i % 2 ? byte >> 4 : byte & 15;
    return nibble < 8 ? nibble : nibble - 16;
}

void store_code(quire_type type, void* row, int64_t i, int code) {
    if (type == QUIRE_INT8) {
        static_cast<int8_t*>(row)[i] = int8_t(code);
        return;
    }
    uint8_t& byte = static_cast<uint8_t*>(row)[i / 2];
    const int nibble = code & 15;
    byte = i % 2 ? uint8_t((byte & 0x0f) | (nibble << 4)) : uint8_t((byte & 0xf0) | nibble);
}

void decode_row(const quire_format& format, int dim, const void* row, const void* scales, float* values) {
    if (const BlockInfo* block = block_info(format.type)) return decode_blocks(*block, dim, row, values);
    if (!is_quantised(format)) return load_numbers(format.type, row, dim, values);
    for (int i = 0; i < dim; ++i)
        values[i] = float(load_code(format.type, row, i)) *
                    load_number(format.scale_type, scales, i / format.quant_group);
}

void encode_row(const quire_format& format, int dim, quire_type input_type, const void* values, void* row,
                void* scales) {
    if (const BlockInfo* block = block_info(format.type)) {
        std::vector<float> numbers;
        for (int i = 0; i < dim; ++i) numbers.push_back(load_number(input_type, values, i));
        return encode_blocks(*block, dim, numbers.data(), row);
    }
    if (!is_quantised(format)) {
        for (int i = 0; i < dim; ++i) store_number(format.type, row, i, load_number(input_type, values, i));
        return;
    }
    const float max_code = float(format_info(format.type)->max_code);
    for (int begin = 0; begin < dim; begin += format.quant_group) {
        float largest = 0;
        bool nan = false;
        for (int i = begin; i < begin + format.quant_group; ++i) {
            const float x = std::fabs(load_number(input_type, values, i));
            nan = nan || std::isnan(x);
            largest = std::max(largest, x);
        }
        // Each step is rounded as the input's type would: the reference computes in that type.
        float scale = round_to(input_type, largest / max_code);
        scale = nan ? NAN : std::max(scale, round_to(input_type, kSmallestScale));
        for (int i = begin; i < begin + format.quant_group; ++i) {
            const float x = load_number(input_type, values, i);
            const float code = std::nearbyint(round_to(input_type, x / scale));
            // A NaN (of NaN or Inf input) has no code: the scale keeps it, so that it reaches its own row.
            store_code(format.type, row, i,
                       std::isnan(code) ? 0 : int(std::clamp(code, -max_code, max_code)));
        }
        store_number(format.scale_type, scales, begin / format.quant_group, scale);
    }
}

void decode_token(const quire_format& format, Side side, int dim, const TokenPlace& at, float* values) {
    const TokenBlockInfo* info = token_block_info(format.type);
    if (!info) return decode_row(format, dim, at.row, at.scales, values);
    std::vector<uint8_t> row(size_t(info->row_bytes(dim)));
    std::vector<uint16_t> scales(size_t(dim / format.quant_group));
    take_row(*info, {side, dim, format.quant_group}, at.row, at.token, row.data(), scales.data());
    decode_row(row_format(format), dim, row.data(), scales.data(), values);
}

void encode_token(const quire_format& format, Side side, int dim, quire_type input_type, const void* values,
                  const TokenPlace& at) {
    const TokenBlockInfo* info = token_block_info(format.type);
    if (!info) return encode_row(format, dim, input_type, values, at.row, at.scales);
    std::vector<uint8_t> row(size_t(info->row_bytes(dim)));
    std::vector<uint16_t> scales(size_t(dim / format.quant_group));
    encode_row(row_format(format), dim, input_type, values, row.data(), scales.data());
    place_row(*info, {side, dim, format.quant_group}, row.data(), scales.data(), at.row, at.token);
}

}  // namespace quire
