// Decode by AMX of codes with their scales, for many query rows: what QK, weights and PV have in common.
//
// A row's largest scale serves all of it, and each group has a share of that, a word. A code times its
// group's share is a number of 16 bits, of two digits: an upper one with a sign and a lower one without,
// which stand in tiles of their own. So is a number of the query, or a weight, whose lower digit has a sign,
// too. Where kernels of other digits (jit/qk_amx.h, jit/weights_amx.h) have a sum for each group, these have
// one for all: of products of upper digits, of upper and lower ones, and of lower ones.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

struct ScaledAmx {
    static constexpr int kDigits = 2, kSums = 3, kTileBytes = 1024, kTileRow = 64;

    explicit ScaledAmx(const RowKey& key)
        : parts(key.format.type == QUIRE_INT4 ? 2 : 1),
          part_bytes(key.dim / parts),
          groups(key.groups()),
          group_bytes(key.format.quant_group / parts),
          stride(key.scales_stride()) {}

    // Of scales that fit a vector, or are several to one, shares lie as they do; else in whole vectors.
    bool is_small() const { return stride <= 16; }
    int share_stride() const { return is_small() ? stride : (groups + 15) / 16 * 16; }

    int parts, part_bytes, groups, group_bytes;  // of a part
    int stride;                                  // of scales
};

// Whether 64 bytes of a row, or of a part of it, are whole groups, or of one.
bool has_scaled_amx(const quire_format& format, int dim, const Target& target);

// Codes that are bytes, times shares: their digits.
class ScaledDigits {
public:
    explicit ScaledDigits(Emitter& e) : e_(e), upper_(e.vec("upper bytes")), swap_(e.vec("bytes swapped")) {}
    void set() const;  // once
    // Words of the bytes with an even number and of the others, above 0.
    void part(const Vec& even, const Vec& odd, const Vec& codes) const;
    // high = the upper digits of both times their shares; odd becomes the lower ones, even is lost.
    void scale(const Vec& high, const Vec& even, const Vec& odd, const Vec& even_share,
               const Vec& odd_share) const;

private:
    Emitter& e_;
    const Vec upper_, swap_;
};

// Shares of the scales of rows, and what the numbers of each are relative to, its top.
class Shares {
public:
    // Of keys, shares are words that stand twice, [row][share_stride()], and tops are NaN where a scale of
    // the row is NaN or Inf. Of values (`of_fours`) shares are words of rows 0 and 2, then of rows 1 and 3,
    // of each four: [row / 4][2][share_stride()], and NaN and Inf count as 0: store_poison() has them. unit:
    // of numbers of 16 bits.
    Shares(Emitter& e, const RowKey& key, bool of_fours, float unit);
    void begin();  // once; clobbers rax, sets k2 and k3
    // Of 16 rows; tops: float [16]. Clobbers k1.
    void emit(const RegExp& scales, const RegExp& shares, const RegExp& tops);
    // Floats that are NaN for groups of which a scale was NaN or Inf, else 0, whole vectors.
    void store_poison(const RegExp& to);
    void finish();  // frees registers

private:
    void emit_small(const RegExp& scales, const RegExp& shares, const RegExp& tops);
    void emit_large(const RegExp& scales, const RegExp& shares, const RegExp& tops);
    void load(const Vec& v, const RegExp& scales, int vector);
    void to_magnitudes(const Vec& v, int vector);
    void emit_inverse(const Vec& top, const Vec& inverse);
    void turn_odd_rows(const Vec& top, const Vec& inverse, int first, int lanes_of_row);
    void make(const Vec& share, const Vec& inverse);
    void store_twice(const Vec& share, const RegExp& to);
    // Shares of rows 0 and 2, or of 1 and 3, side by side, in place of the second's.
    void join(const Vec& of_second, const Vec& of_first);

    Emitter& e_;
    const ScaledAmx form_;
    const bool of_fours_, scales_of_f32_;
    const float unit_;
    const Xbyak::Opmask last_{2}, lower_{3};  // groups of a (last) vector; lower words
    Vec mask_, order_, most_;
    std::vector<Vec> poison_;
};

// What weights and PV share, in WeightsArgs::weights.
struct ScaledValueAmx : ScaledAmx {
    static constexpr int kStepKeys = 64, kSteps = kBlock / kStepKeys;
    static constexpr int kRun = 16;   // bytes
    static constexpr int kTiles = 2;  // of values, 16 elements each, that a pass takes

    explicit ScaledValueAmx(const RowKey& key) : ScaledAmx(key), rows(key.rows) {}

    // Bytes: tiles of weights [kSteps][kDigits], the lower ones first, keys in the order of
    // ValueAmx::key_of(). Then shares, tops, inverses of four query rows, products float [4][kBlock], and
    // poison.
    static constexpr int weights_at(int step, int digit) { return (step * kDigits + digit) * kTileBytes; }
    static constexpr int shares_at() { return weights_at(kSteps, 0); }
    int four_bytes() const { return 2 * share_stride() * 4; }
    int tops_at() const { return shares_at() + kBlock / 4 * four_bytes() + 64; }
    int inverses_at() const { return tops_at() + kBlock * 4 + 64; }
    int products_at() const { return inverses_at() + 64; }
    int poison_at() const { return products_at() + 4 * kBlock * 4; }
    int weights_bytes() const { return poison_at() + (groups + 15) / 16 * 64; }
    // Factors of sums, in WeightsArgs::factors: float [rows][factor_stride()].
    int factor_stride() const { return (groups + 15) / 16 * 16; }
    // For the plan, of so many query rows: as of weights that a query row and a group have.
    static int weight_stride(const RowKey& key, int rows);

    int runs() const { return part_bytes / kRun; }
    int runs_a_pass() const { return kTiles / parts; }
    int passes() const { return (runs() + runs_a_pass() - 1) / runs_a_pass(); }
    int runs_of(int pass) const { return std::min(runs_a_pass(), runs() - pass * runs_a_pass()); }
    int group_of_run(int run) const { return run * kRun / group_bytes; }  // the first
    // A run's groups alternate in the columns of a tile, so that shares and factors are loaded as they lie.
    int groups_of_run() const { return std::max(1, kRun / group_bytes); }
    int byte_of_column(int column) const {
        const int t = groups_of_run();
        return t == 1 ? column : column % t * group_bytes + column / t;
    }
    // In scratch: tiles [kSteps][kTiles][kDigits], the upper ones first; sums [kTiles][kSums].
    static constexpr int tile_at(int step, int tile, int digit) {
        return ((step * kTiles + tile) * kDigits + digit) * kTileBytes;
    }
    static constexpr int sum_at(int tile, int sum) {
        return tile_at(kSteps, 0, 0) + (tile * kSums + sum) * kTileBytes;
    }

    int rows;
};

Status generate_qk_scaled_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)
Status generate_weights_scaled_amx(const RowKey& key,
                                   std::vector<uint8_t>* code);                // void(const WeightsArgs*)
Status generate_pv_scaled_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const PvArgs*)

}  // namespace quire::jit
