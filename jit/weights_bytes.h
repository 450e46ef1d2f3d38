// Decode at `medium` without VNNI: values of four bits, four keys a lane, by weights that are unsigned bytes:
// `vpmaddubsw` for four keys where words have `vpmaddwd` for two, and sums that fit words.
//
// A weight is relative to the largest probability of a run of keys and to the largest scale of its group in
// the block; what sums of a run are multiplied by, a word, is that probability. There are none of negative
// scales: who has any multiplies their magnitudes for themselves; but in q4_0 every other scale is negative,
// and its codes are multiplied by the sign.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

struct ValueBytes {
    static constexpr int kRun = 16;        // keys whose weights share a factor
    static constexpr int kTurn = 8;        // keys whose weights lie side by side
    static constexpr int kSet = 4;         // groups, as well
    static constexpr int kTurnBytes = 32;  // of weights of a row and set, and of all else
    static constexpr int kMostCode = 8, kMostWeight = 255, kMostFactor = 8191;
    static_assert(4 * kMostCode * kMostWeight < 1 << 15);  // of a lane's word
    static_assert(int64_t(kBlock) * kMostCode * kMostWeight * kMostFactor < int64_t(1) << 31);

    explicit ValueBytes(const RowKey& key) : rows(key.rows), sets(sets_of(key)), signs(has_signs(key)) {}
    static bool has_signs(const RowKey& key) { return key.format.type == QUIRE_Q4_0; }

    // Bytes: weights as uint8_t [rows][sets][kBlock / 8][2 fours of keys][kSet][4 keys]; behind them what
    // they are multiplied by, int16_t [rows][kBlock / 8][16], all of them alike; and room for words of
    // probabilities, as large, and of a set's scales, [kBlock / 8][2][16]; and signs, 1 or -1, as weights of
    // a row. Factors are float [rows][sets][kSet].
    static constexpr int kRowBytes = kBlock / kTurn * kTurnBytes;
    int weights_at(int row, int set) const { return (row * sets + set) * kRowBytes; }
    int runs_at(int row) const { return weights_at(rows, 0) + row * kRowBytes; }
    int probabilities_at(int row) const { return runs_at(rows + row); }
    int scales_at() const { return probabilities_at(rows); }
    int signs_at(int set) const { return scales_at() + 2 * kRowBytes + set * kRowBytes; }
    int factor_at(int row, int set) const { return (row * sets + set) * kSet * 4; }
    // AttentionPlan::weight_stride, that has room for them, of any number of rows.
    static int weight_stride(const RowKey& key) { return 4 * sets_of(key) + 6; }

    const int rows, sets;
    const bool signs;

private:
    static int sets_of(const RowKey& key) { return (key.groups() + kSet - 1) / kSet; }
};

bool has_value_bytes(const RowKey& values);  // whatever their products

// Of rows; of blocks of tokens: jit/token_weights.h.
Status generate_weights_bytes(const RowKey& key, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
