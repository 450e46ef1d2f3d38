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
    static constexpr int kStepKeys = 64;  // of a row of a tile
    static constexpr int kSteps = kBlock / kStepKeys, kRowBytes = 64, kTileRows = 16;
    static constexpr int kRun = 16;  // bytes

    explicit ValueAmx(const RowKey& key)
        : rows(key.rows),
          row_fours((key.rows + 3) / 4),
          groups(key.groups()),
          digits(key.tile_digits()),
          of_tokens(token_block_info(key.format.type) != nullptr),
          nibbles(is_of_nibbles(row_format(key.format))),
          row_bytes(of_tokens ? key.dim : key.row_bytes()),
          rows_a_part(fits(8) ? 8 : 4) {}

    // The largest weight, which both serve like ValueFours::kLargest: of digits (127, 89) or that.
    float largest() const { return digits == 2 ? float(127 << 8 | 89) : ValueFours::kLargest; }
    // Codes of four bits are 16 times as large.
    float unit() const { return 1 / largest() / (nibbles ? 16 : 1); }

    // Query rows that are multiplied together: whole fours, as many as there are registers and scratch for.
    int parts() const { return (rows + rows_a_part - 1) / rows_a_part; }
    int first_row(int part) const { return part * rows_a_part; }
    int rows_of(int part) const { return std::min(rows_a_part, rows - first_row(part)); }

    // Bytes: of each part weights as int8_t [steps][groups][digits, the lowest first][rows][64 keys, in the
    // order of key_of()], those behind the last key up to kBlock 0; behind all of them what numbers were
    // multiplied by, and products, float [kept_groups()][rows][kBlock], of a part and of some groups at a
    // time. The former and factors are float [groups][whole fours of rows].
    int set_bytes() const { return digits * kRowBytes; }  // of a row and a group
    int group_bytes(int part) const { return rows_of(part) * set_bytes(); }
    int step_bytes(int part) const { return groups * group_bytes(part); }
    int weights_at(int part, int step, int group) const {
        return first_row(part) * groups * set_bytes() * kSteps + step * step_bytes(part) +
               group * group_bytes(part);
    }
    int inverse_at(int group, int row) const {
        return rows * groups * set_bytes() * kSteps + factor_at(group, row);
    }
    int factor_at(int group, int row) const { return (group * row_fours * 4 + row) * 4; }
    // Products are made of a group while those before wait for their largest; of many rows those of one fill
    // enough of the first-level cache.
    int kept_groups(int part) const { return rows_of(part) > 4 ? 1 : 2; }
    int products_at(int part, int group) const {
        return (inverse_at(groups, 0) + 63) / 64 * 64 +
               group % kept_groups(part) * rows_of(part) * kBlock * 4;
    }
    // As ValueFours::weight_stride(): a row and a group take less than 1 KB, with products.
    // Behind the last ones a whole tile is read.
    static int weight_stride(const RowKey& key) { return 4 * key.groups() + 4; }

    // Row i of a tile of values, and lane i of a step's weights, have the four keys from this one on.
    static int key_of(int i) { return i % 4 * 16 + i / 4 * 4; }

    // A tile's columns are a run of 16 bytes of a row, or their low or upper nibbles: the groups of every
    // four.
    std::vector<int> groups_of(int run) const {
        const int of_group = row_bytes / groups;
        std::vector<int> list;
        for (int at = run * kRun; at < (run + 1) * kRun; at += 4) list.push_back(at / of_group);
        return list;
    }
    int most_groups() const {
        int most = 0;
        for (int run = 0; run < row_bytes / kRun; ++run)
            most = std::max(most, groups_of(run).back() - groups_of(run).front() + 1);
        return most;
    }
    // Of so many runs, or of what is left: of more, values, tiles and sums push each other out of the
    // first-level cache.
    int chunk_runs() const { return 2 / tiles_of_run(); }
    int chunks() const { return (row_bytes / kRun + chunk_runs() - 1) / chunk_runs(); }
    int first_run(int chunk) const { return chunk * chunk_runs(); }
    int runs_of(int chunk) const { return std::min(chunk_runs(), row_bytes / kRun - first_run(chunk)); }

    // In scratch, bytes: tiles of a chunk of all steps; behind them sums, int32_t
    // [tiles][most_groups()][digits][rows][16].
    static constexpr int kTileBytes = 16 * kRowBytes;
    int tiles_of_run() const { return nibbles && !of_tokens ? 2 : 1; }  // of low nibbles, and of upper ones
    int tiles() const { return chunk_runs() * tiles_of_run(); }
    int tiles_step_bytes() const { return tiles() * kTileBytes; }
    int sums_at() const { return kSteps * tiles_step_bytes(); }
    int sums_bytes(int most_rows) const {
        return std::max(kTileRows, most_groups() * digits * most_rows) * kRowBytes;
    }
    bool fits(int most_rows) const {
        return sums_at() + tiles() * sums_bytes(most_rows) <= kMostNumbers * 64;
    }

    const int rows, row_fours, groups, digits;
    const bool of_tokens, nibbles;
    const int row_bytes;  // that become columns of tiles; of blocks of tokens elements
    const int rows_a_part;
};

bool has_value_amx(const RowKey& values);  // whatever their products
// Of these products, those of jit/scaled_amx.h, too.
bool takes_value_amx(const RowKey& values);

Status generate_weights_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
