// Decode at `medium` without VNNI: values four keys a lane, by weights that are unsigned bytes: `vpmaddubsw`
// for four keys where words have `vpmaddwd` for two. With codes of four bits sums of eight keys fit words.
// With codes of eight bits weights of two keys may be 255 together: those of four keys, which have a factor
// of their own, are relative to the larger sum of two, and to what scales these keys have.
//
// A weight is relative to the largest probability of a run of keys and to the largest scale of its group in
// the block; what sums of a run are multiplied by, a word, is that probability. There are none of negative
// scales: who has any multiplies their magnitudes for themselves; but in q4_0 every other scale is negative,
// and its codes are multiplied by the sign.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Of all keys that are added up as words, and of all of a block, nothing is too large.
struct ByteWeights {
    int run;     // keys whose weights share a factor
    int summed;  // products in a lane's word
    int most_code, most_weight, most_factor;
    // By fours the largest weight, and one more where both are rounded up, is that of two keys together, and
    // a factor up to twice as large, and one more. (Products are -2^15 at least, but not 2^15: no code is
    // 128.)
    constexpr bool fits() const {
        const int64_t of_word = run == 4 ? most_code * (most_weight + 1) : summed * most_code * most_weight;
        const int64_t of_block =
            run == 4 ? kBlock / 2 * of_word * (2 * most_factor + 1) : kBlock / summed * of_word * most_factor;
        return of_word <= 1 << 15 && of_block < int64_t(1) << 31;
    }
};

struct ValueBytes {
    static constexpr ByteWeights kOfNibbles = {16, 4, 8, 255, 8191}, kOfBytes = {4, 2, 128, 255, 511};
    static_assert(kOfNibbles.fits() && kOfBytes.fits());
    static constexpr int kTurn = 8;        // keys whose weights lie side by side
    static constexpr int kSet = 4;         // groups, as well
    static constexpr int kTurnBytes = 32;  // of weights of a row and set, and of all else

    explicit ValueBytes(const RowKey& key)
        : rows(key.rows), sets(sets_of(key)), signs(has_signs(key)), form(form_of(key)) {}
    static bool has_signs(const RowKey& key) { return key.format.type == QUIRE_Q4_0; }
    // Each four keys are a run, and are not added to others as words.
    bool by_fours() const { return form.run == 4; }

    // Bytes: weights as uint8_t [rows][sets][kBlock / 8][2 fours of keys][kSet][4 keys]; behind them what
    // they are multiplied by, int16_t [rows][kBlock / 8][16], all of them alike, by fours [rows][2 fours]
    // [kBlock / 8][16]; and room for words of probabilities, [rows][kBlock / 8][16], and of scales,
    // [sets][kBlock / 8][2][16]; for their tops, float [sets][kSet], and eight more numbers; and signs, 1 or
    // -1, as weights of a row, or by fours float [kBlock]. Factors are float [rows][sets][kSet].
    static constexpr int kRowBytes = kBlock / kTurn * kTurnBytes;
    int weights_at(int row, int set) const { return (row * sets + set) * kRowBytes; }
    int runs_at(int row, int four) const {
        return weights_at(rows, 0) + (by_fours() ? 2 * row + four : row) * kRowBytes;
    }
    int probabilities_at(int row) const { return runs_at(rows, 0) + row * kRowBytes; }
    int scales_at(int set) const { return probabilities_at(rows) + set * 2 * kRowBytes; }
    int tops_at(int set) const { return scales_at(sets) + set * kSet * 4; }
    int signs_at(int set) const { return tops_at(sets) + kTurnBytes + set * kRowBytes; }
    int shares_at() const { return signs_at(0); }
    int factor_at(int row, int set) const { return (row * sets + set) * kSet * 4; }
    // AttentionPlan::weight_stride, that has room for them and for factors.
    static int weight_stride(RowKey key, int rows) {
        key.rows = rows;
        const ValueBytes form(key);
        const int bytes = form.signs_at(form.signs ? form.sets : 1), unit = rows * kBlock / 2 * 4;
        return std::max((bytes + unit - 1) / unit, kSet * form.sets);
    }

    const int rows, sets;
    const bool signs;
    const ByteWeights form;

private:
    static int sets_of(const RowKey& key) { return (key.groups() + kSet - 1) / kSet; }
    static ByteWeights form_of(const RowKey& key) {
        return is_of_nibbles(row_format(key.format)) ? kOfNibbles : kOfBytes;
    }
};

bool has_value_bytes(const RowKey& values);  // whatever their products; those of jit/weights_runs.h as well
// AttentionPlan::weight_stride of them, that has room for so many query rows.
int value_bytes_stride(const RowKey& values, int rows);

// Of rows; of blocks of tokens: jit/token_weights.h.
Status generate_weights_bytes(const RowKey& key, std::vector<uint8_t>* code);  // void(const WeightsArgs*)

}  // namespace quire::jit
