// The table of cache formats, with a scalar encode and decode of each: the definition that generated code is
// tested against. To add a format: docs/adding-a-format.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "quire/quire.h"
#include "src/blocks.h"
#include "src/token_blocks.h"

namespace quire {

// What a caller's tensor holds, at any address: the compiler must not assume more.
using UnalignedFloat [[gnu::aligned(1)]] = float;
using UnalignedHalf [[gnu::aligned(1)]] = uint16_t;
using UnalignedUint32 [[gnu::aligned(1)]] = uint32_t;
using UnalignedInt32 [[gnu::aligned(1)]] = int32_t;
using UnalignedInt64 [[gnu::aligned(1)]] = int64_t;

constexpr int kMostHeadDim = 1024;

struct FormatInfo {
    quire_type type;
    const char* name;
    int max_code;     // 0: no codes with scales of their own tensor; else codes are -max_code..max_code
    const char* why;  // what it is for
};

// Null for a type that no cache can have.
const FormatInfo* format_info(quire_type type);

// All rows of the table, for tests and benches.
const FormatInfo* format_table(size_t* count);

// Codes whose scales are a tensor of their own.
inline bool is_quantised(const quire_format& f) {
    const FormatInfo* info = format_info(f.type);
    return info != nullptr && info->max_code != 0;
}
inline bool operator==(const quire_format& a, const quire_format& b) {
    return a.type == b.type && a.quant_group == b.quant_group && a.scale_type == b.scale_type;
}

// "f32, f16, ... or iq4_nl": the table's.
std::string format_names();

// "int8_gr32_f16", "f32".
std::string format_name(const quire_format& format);

const char* type_name(quire_type type);
// Bits of one element, 0 for QUIRE_NONE and where only blocks of elements have a size.
int type_bits(quire_type type);
// The least elements that are whole bytes, and their bytes: int4 {2, 1}, q8_0 {32, 34}. {0, 0}: no type.
struct TypeSize {
    int elements, bytes;
};
TypeSize type_size(quire_type type);
// Of whole bytes or blocks; may be negative, as strides are.
inline int64_t bytes_of(quire_type type, int64_t elements) {
    const TypeSize size = type_size(type);
    return elements / size.elements * size.bytes;
}
// Codes of four bits; those of five have theirs elsewhere.
bool is_of_nibbles(const quire_format& f);
// Which are low ones and high ones apart as bytes, too; with fifth bits they are put in the order of
// elements.
bool has_two_parts(const quire_format& f);
// And of which each means a number from -8 to 7; those of iq4_nl mean numbers of eight bits.
bool has_small_numbers(const quire_format& f);
// Whose groups have a minimum beside their scale.
inline bool has_minima(const quire_format& f) {
    const BlockInfo* block = block_info(f.type);
    return block && block->has_min;
}
// Values that share a scale, 0: none do.
inline int scale_group(const quire_format& f) {
    return block_info(f.type)                            ? kBlockValues
           : is_quantised(f) || token_block_info(f.type) ? f.quant_group
                                                         : 0;
}

// Blocks of tokens: the format of a plain row, and the bytes of a block. Their tensors are of bytes: [blocks,
// Hk, bytes of a block].
inline quire_format row_format(const quire_format& f) {
    const TokenBlockInfo* info = token_block_info(f.type);
    return info ? quire_format{info->row_type, f.quant_group, f.scale_type} : f;
}
inline int block_bytes(const quire_format& f, int dim) {
    const TokenBlockInfo* info = token_block_info(f.type);
    return info ? info->bytes(dim, f.quant_group) : 0;
}
// Slots that lie together.
inline int tokens_of_block(const quire_format& f) { return token_block_info(f.type) ? kBlockTokens : 1; }

// Element i of a packed row of plain numbers (F32, F16, BF16).
float load_number(quire_type type, const void* base, int64_t i);
void store_number(quire_type type, void* base, int64_t i, float value);
// The first `count` elements.
void load_numbers(quire_type type, const void* base, int count, float* out);
// `value` as that type would hold it.
float round_to(quire_type type, float value);

// Code i of a row of INT8 or INT4.
int load_code(quire_type type, const void* row, int64_t i);
void store_code(quire_type type, void* row, int64_t i, int code);

// The row's values: numbers, code * scale, or what blocks say. `scales` may be null where the format has
// none.
void decode_row(const quire_format& format, int dim, const void* row, const void* scales, float* values);

// Stores `dim` values of `input_type`; see quire_append_desc for the arithmetic. Writes row and scales only.
void encode_row(const quire_format& format, int dim, quire_type input_type, const void* values, void* row,
                void* scales);

// Where a token's key or value is: its row and scales, or the block that holds it and its number there.
struct TokenPlace {
    void *row, *scales;
    int token;
};
void decode_token(const quire_format& format, Side side, int dim, const TokenPlace& at, float* values);
void encode_token(const quire_format& format, Side side, int dim, quire_type input_type, const void* values,
                  const TokenPlace& at);

}  // namespace quire
