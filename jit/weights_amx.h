// Decode's values by tiles of AMX: signed bytes of four keys a lane, by weights of two or three digits, at
// `highest` as jit/weights_fours.h has them, below it of 15 bits and a sign.
//
// A product of tiles is of rows of weights, those of some groups (their digits, their query rows), and of
// columns of values, an element each: a row of weights counts for the columns of its group alone.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"
#include "jit/weights_fours.h"

namespace quire::jit {

struct ValueAmx {
    static constexpr int kRows = 8;       // query rows that are multiplied together, at most
    static constexpr int kStepKeys = 64;  // of a row of a tile
    static constexpr int kSteps = kBlock / kStepKeys, kRowBytes = 64;
    static constexpr int kRun = 16;  // bytes

    explicit ValueAmx(const RowKey& key)
        : rows(key.rows),
          row_fours((key.rows + 3) / 4),
          groups(key.groups()),
          digits(key.products == Products::two_bytes ? 2 : 3),
          nibbles(is_of_nibbles(key.format)),
          row_bytes(key.row_bytes()) {}

    // The largest weight, which both serve like ValueFours::kLargest: of digits (127, 89) or that.
    float largest() const { return digits == 2 ? float(127 << 8 | 89) : ValueFours::kLargest; }
    // Codes of four bits are 16 times as large.
    float unit() const { return 1 / largest() / (nibbles ? 16 : 1); }

    int parts() const { return (rows + kRows - 1) / kRows; }
    int first_row(int part) const { return part * kRows; }
    int rows_of(int part) const { return std::min(kRows, rows - first_row(part)); }

    // Bytes: of each part weights as int8_t [steps][groups, by place_of()][digits, the lowest first][rows][64
    // keys, in the order of key_of()], those behind the last key 0; behind all of them what numbers were
    // multiplied by, and, for a part at a time, products, float [groups][rows][kBlock]. The former and
    // factors are float [groups][whole fours of rows].
    int set_bytes() const { return digits * kRowBytes; }  // of a row and a group
    int group_bytes(int part) const { return rows_of(part) * set_bytes(); }
    int step_bytes(int part) const { return groups * group_bytes(part); }
    int weights_at(int part, int step, int group) const {
        return first_row(part) * groups * set_bytes() * kSteps + step * step_bytes(part) +
               place_of(group) * group_bytes(part);
    }
    // Groups of a tile of values follow each other: of small ones every second, or every fourth.
    int place_of(int group) const {
        const int of_run = std::max(1, kRun / (row_bytes / groups));
        return group % of_run * (groups / of_run) + group / of_run;
    }
    int inverse_at(int group, int row) const {
        return rows * groups * set_bytes() * kSteps + factor_at(group, row);
    }
    int factor_at(int group, int row) const { return (group * row_fours * 4 + row) * 4; }
    int products_at(int part, int group) const {
        return (inverse_at(groups, 0) + 63) / 64 * 64 + group * rows_of(part) * kBlock * 4;
    }
    // As ValueFours::weight_stride(): for products and digits together they take less than 1 KB.
    static int weight_stride(const RowKey& key) { return 4 * key.groups(); }

    // Row i of a tile of values, and lane i of a step's weights, have the four keys from this one on.
    static int key_of(int i) { return i % 4 * 16 + i / 4 * 4; }

    // A tile's columns are four elements each of four runs of 16 bytes of a row: column 4 i + m is byte
    // chunk * 64 + 16 i + 4 j + m of tile j. Its groups, one for each run, those behind the row left out.
    std::vector<int> groups_of(int chunk, int j) const {
        const int of_group = row_bytes / groups;
        std::vector<int> list;
        for (int at = chunk * kRowBytes; at < std::min((chunk + 1) * kRowBytes, row_bytes); at += kRun)
            list.push_back((at + 4 * j) / of_group);
        return list;
    }
    int chunks() const { return (row_bytes + kRowBytes - 1) / kRowBytes; }
    int bytes_of(int chunk) const { return std::min(kRowBytes, row_bytes - chunk * kRowBytes); }

    const int rows, row_fours, groups, digits;
    const bool nibbles;
    const int row_bytes;
};

bool has_value_amx(const RowKey& values);  // whatever their products
// Of these products.
bool takes_value_amx(const RowKey& values);

Status generate_weights_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
