// Decode at `medium` with VNNI and vectors of 512 bits: values four keys a lane, by weights that are unsigned
// bytes: a dot product for four keys where words have one for two.
//
// A run of as many keys as a vector has lanes shares a factor, by which its sums are multiplied as numbers: a
// weight is relative to the run's largest probability and to the largest scale of its group in the run. There
// are none of negative scales: who has any multiplies their magnitudes for themselves.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

struct ValueRuns {
    static constexpr int kRun = 16;    // keys
    static constexpr int kVecs = 2;    // of a dword of four codes, or of eight of four bits
    static constexpr int kSet = 4;     // groups whose weights of a run are a vector
    static constexpr int kFour = 4;    // query rows whose factors of a run are one
    static constexpr int kBytes = 64;  // of a vector
    static constexpr float kLargest = 255;
    static constexpr int kMostTokenGroups = 16;  // that the weights have registers for

    explicit ValueRuns(const RowKey& key)
        : rows(key.rows), row_fours((key.rows + kFour - 1) / kFour), sets((key.groups() + kSet - 1) / kSet) {}

    // Bytes: weights as uint8_t [sets][rows][kBlock / 16 runs][4 fours of keys][kSet][4 keys]; behind them
    // factors, float [sets][fours of rows][runs][4 rows][kSet]; and what those are multiplied by, float
    // [fours of rows][4 rows][kSet].
    static constexpr int kRowBytes = kBlock / kRun * kBytes;
    int weights_at(int set, int row) const { return (set * rows + row) * kRowBytes; }
    int factors_at(int set, int row) const {
        return weights_at(sets, 0) + (set * row_fours + row / kFour) * kRowBytes + row % kFour * kSet * 4;
    }
    int blocks_at(int row) const { return factors_at(sets, 0) + row / kFour * kBytes; }
    // AttentionPlan::weight_stride, that has room for them.
    static int weight_stride(RowKey key, int rows) {
        key.rows = rows;
        const ValueRuns form(key);
        const int bytes = form.blocks_at(form.row_fours * kFour), unit = rows * kBlock / 2 * 4;
        return (bytes + unit - 1) / unit;
    }

    const int rows, row_fours, sets;
};

bool has_value_runs(const RowKey& values);  // whatever their products

Status generate_weights_runs(const RowKey& key, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
