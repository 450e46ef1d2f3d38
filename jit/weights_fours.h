// Decode at `highest`: values as bytes, four keys a lane, by weights of three digits: three dot products of
// bytes where floats take four products, and no conversions.
//
// A weight, probability * scale, is a whole number of 23 bits and a sign, relative to the largest one of its
// row and group in the block, as three signed digits of base 256. Codes are unsigned, so many more than they
// are; the sums start with what that adds.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

struct ValueFours {
    static constexpr int kDigits = 3;
    // The largest weight, of digits (127, 89, 0): 15 bits of its own, so that a single key's sum is exact,
    // and times kUnit, which is nearly its inverse, is the code, as it is of float32.
    static constexpr float kLargest = 127 << 16 | 89 << 8, kUnit = 1 / kLargest;
    static constexpr int kFourBytes = 16;  // of the weights of four keys
    static constexpr int kVecs = 2;        // of a dword of four codes, or of eight of four bits

    explicit ValueFours(const RowKey& key)
        : rows(key.rows), row_fours((key.rows + 3) / 4), groups(key.groups()) {}

    static float largest() { return kLargest; }

    // Bytes: weights as int8_t [groups][rows][kBlock / 4][4: the digits, the lowest first][4 keys]; behind
    // them the starts, int32_t [groups][whole fours of rows][4], and what numbers were multiplied by. That
    // and factors are float [groups][whole fours of rows].
    int run_bytes() const { return kBlock / 4 * kFourBytes; }
    int weights_at(int group, int row) const { return (group * rows + row) * run_bytes(); }
    int start_at(int group, int row) const {
        return groups * rows * run_bytes() + (group * row_fours * 4 + row) * 16;
    }
    int inverse_at(int group, int row) const { return start_at(groups, 0) + factor_at(group, row); }
    int factor_at(int group, int row) const { return (group * row_fours * 4 + row) * 4; }
    // AttentionPlan::weight_stride, that has room for them, and for the factors of one row.
    static int weight_stride(const RowKey& key) { return 4 * key.groups(); }

    const int rows, row_fours, groups;
};

bool has_value_fours(const RowKey& values);  // whatever their products

Status generate_weights_fours(const RowKey& key, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
