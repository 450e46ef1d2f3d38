// Rows of the cache in the order of a block of tokens, for QK with tokens in the lanes. On AVX2 that takes
// some five operations for eight dwords of codes; it saves sums across lanes, a scale for every vector, and
// half of the query's loads.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <string>
#include <vector>

#include "jit/args.h"
#include "jit/prefetch.h"
#include "jit/row_list.h"
#include "jit/token_keys.h"
#include "src/token_blocks.h"

namespace quire::jit {
namespace {

constexpr int kQuarter = 16;  // bytes of a row that are turned at a time: four dwords

// numbers: uint32_t codes[D / N][16], float scales[groups][16]
//
// for each eight rows, for each quarter of them:                                   turn_codes
//   v[t] = the quarters of rows t and t + 4, transposed: v[j] = dword j of all eight
// the same of four groups' scales                                                  turn_scales
class TurnedKeys : public TokenKeys {
public:
    TurnedKeys(Emitter& e, const RowKey& key, int parts)
        : e_(e),
          key_(key),
          rows_a_part_(kBlockTokens % parts == 0 ? kBlockTokens / parts : 0),
          rows_(e, key, key.row_bytes(), "rows"),
          prefetch_(e, key) {
        assert(code_bytes() + key.groups() * group_bytes() <= kMostNumbers * e.vec_bytes());
        assert(e.lanes() == 8);
    }

    void set() override {
        rows_.set(e_.args() + offsetof(QkArgs, rows));
        e_.mov(scales_, e_.ptr[e_.args() + offsetof(QkArgs, scales)]);
        prefetch_.set(e_.args() + offsetof(QkArgs, next), 0);
    }
    void begin_turn() override {
        const Gpr to = e_.gpr("turned"), row = e_.gpr("row"), fourth = e_.gpr("the fourth from it");
        codes(to);
        rows_.turn(row);
        for (int first = 0; first < kBlockTokens; first += 8) turn_codes(to, first, row, fourth);
        e_.add(to, code_bytes());
        for (int first = 0; first < kBlockTokens; first += 8) turn_scales(to, first);
        for (const Gpr& r : {to, row, fourth}) e_.free(r);
        rows_.move(kBlockTokens);
        e_.add(scales_, kBlockTokens * scales_bytes());
    }
    void begin_part() override {
        if (rows_a_part_ == 0) return;
        prefetch_.some(rows_a_part_, 0, 1);
        prefetch_.move(rows_a_part_);
    }
    void end_turn() override {
        if (rows_a_part_ == 0) prefetch_.move(kBlockTokens);
    }
    void codes(const Gpr& to) override { e_.mov(to, e_.ptr[e_.args() + offsetof(QkArgs, numbers)]); }
    void scales(const Gpr& to) override {
        codes(to);
        e_.add(to, code_bytes());
    }
    int scale_bytes() const override { return 4; }
    void load_scales(const Vec& v, const RegExp& at) override { e_.vmovups(v, e_.ptr[at]); }

private:
    int code_bytes() const { return kBlockTokens * key_.row_bytes(); }
    int group_bytes() const { return kBlockTokens * 4; }
    int scales_bytes() const { return key_.scales_stride() * 4; }

    // So many are turned together, as a row's address is taken from a list for all of them.
    int quarters_a_step() const {
        const int quarters = key_.row_bytes() / kQuarter;
        return quarters % 3 == 0 ? 3 : quarters % 2 == 0 ? 2 : 1;
    }

    void turn_codes(const Gpr& to, int first, const Gpr& row, const Gpr& fourth) {
        const int count = quarters_a_step(), steps = key_.row_bytes() / kQuarter / count;
        for (int step = 0; step < steps; ++step) {
            e_.stage("rows from " + std::to_string(first) + ", step " + std::to_string(step));
            emit_prefetches(first / 8 * steps + step, kBlockTokens / 8 * steps);
            std::vector<std::vector<Vec>> v;  // [count][4]
            for (int q = 0; q < count; ++q) v.push_back(e_.vecs("codes", 4));
            for (int t = 0; t < 4; ++t) {
                const RegExp low = rows_.in_turn(first + t, row), high = rows_.in_turn(first + t + 4, fourth);
                for (int q = 0; q < count; ++q) {
                    const int at = (step * count + q) * kQuarter;
                    e_.load_quarters(v[size_t(q)][size_t(t)], {low + at, high + at});
                }
            }
            for (int q = 0; q < count; ++q) {
                e_.transpose_dwords(v[size_t(q)]);
                store(to, (step * count + q) * 4, 4, first, v[size_t(q)]);
                e_.free(v[size_t(q)]);
            }
        }
    }

    // Of fewer than four groups what lies behind is turned, too, and dropped.
    void turn_scales(const Gpr& to, int first) {
        for (int group = 0; group < key_.groups(); group += 4) {
            e_.stage("scales of rows from " + std::to_string(first));
            const std::vector<Vec> v = e_.vecs("scales", 4);
            for (int t = 0; t < 4; ++t) {
                const RegExp at = scales_ + (first + t) * scales_bytes() + group * 4;
                e_.load_quarters(v[size_t(t)], {at, at + 4 * scales_bytes()});
            }
            e_.transpose_dwords(v);
            const int count = std::min(4, key_.groups() - group);
            for (int i = 0; i < count; ++i) e_.inf_to_nan(v[size_t(i)]);
            store(to, group, count, first, v);
            e_.free(v);
        }
    }

    // The first `count` of v, for tokens from `first` on: rows `at` and what follows of [][16].
    void store(const Gpr& to, int at, int count, int first, const std::vector<Vec>& v) {
        for (int i = 0; i < count; ++i)
            e_.vmovups(e_.ptr[to + (at + i) * group_bytes() + first * 4], v[size_t(i)]);
    }

    // The next turn's rows, where they are not one piece of memory, of which the processor itself reads
    // ahead.
    void emit_prefetches(int part, int parts) {
        if (!rows_.adjacent()) prefetch_.soon(rows_, kBlockTokens, part, parts);
        if (rows_a_part_ == 0) prefetch_.some(kBlockTokens, part, parts);
    }

    Emitter& e_;
    const RowKey key_;
    const int rows_a_part_;  // of the next block, that each part asks for; 0: a turn's beginning does
    RowList rows_;
    Prefetch prefetch_;
    const Gpr scales_ = e_.gpr("scales of rows");
};

// Query rows for which that pays (docs/performance.md): in floats those of one pass.
bool pays(const RowKey& key) { return key.words() ? key.rows >= 2 && key.rows <= 8 : key.rows <= 5; }

}  // namespace

bool turns_keys(const RowKey& key) {
    return key.target->vector_bits == 256 && key.format.type == QUIRE_INT4 && key.query_bytes() == 0 &&
           key.row_bytes() % kQuarter == 0 && key.format.quant_group % 8 == 0 && pays(key);
}

std::unique_ptr<TokenKeys> make_turned_keys(Emitter& e, const RowKey& key, int parts) {
    return std::make_unique<TurnedKeys>(e, key, parts);
}

}  // namespace quire::jit
