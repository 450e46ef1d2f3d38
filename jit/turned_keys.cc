// Rows of the cache, or of ggml's blocks, in the order of a block of tokens, for QK with tokens in the lanes.
// On AVX2 that takes some five operations for eight dwords of codes; it saves sums across lanes, a scale for
// every vector, and half of the query's loads.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <string>
#include <vector>

#include "jit/args.h"
#include "jit/prefetch.h"
#include "jit/row_list.h"
#include "jit/token_codes.h"
#include "jit/token_keys.h"
#include "src/blocks.h"
#include "src/token_blocks.h"

namespace quire::jit {
namespace {

constexpr int kQuarter = 16;  // bytes of a row that are turned at a time: four dwords

// Quarters of a row, of its codes alone.
int quarters_of(const RowKey& key) { return key.dim / codes_of_dword(key.format) * 4 / kQuarter; }
int quarter_at(const RowKey& key, int quarter) {
    const BlockInfo* block = block_info(key.format.type);
    if (!block) return quarter * kQuarter;
    const int of_block = kBlockValues * block->code_bits / 8 / kQuarter;
    return quarter / of_block * block->bytes + block->codes_at + quarter % of_block * kQuarter;
}

// numbers: uint32_t codes[D / N][16], float scales[groups][16], one vector further on
//   of nibbles that are taken as tops, codes[D / N][2][16]: behind each dword it again, shifted left by four
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
        assert(e.vec_bytes() + code_bytes() + key.groups() * group_bytes() <= kMostNumbers * e.vec_bytes());
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
    void ask(int step, int steps) override {
        if (rows_a_part_ == 0) return;
        if (step % 2 == 0) prefetch_.some(rows_a_part_, step / 2, (steps + 1) / 2);
        if (step + 1 == steps) prefetch_.move(rows_a_part_);
    }
    void end_turn() override {
        if (rows_a_part_ == 0) prefetch_.move(kBlockTokens);
    }
    void codes(const Gpr& to) override {
        e_.mov(to, e_.ptr[e_.args() + offsetof(QkArgs, numbers)]);
        e_.add(to, e_.vec_bytes());
    }
    int chunk_bytes() const override { return raises_ ? 2 * group_bytes() : group_bytes(); }
    int raised() const override { return group_bytes(); }
    void scales(const Gpr& to) override {
        codes(to);
        e_.add(to, code_bytes());
    }
    int scale_bytes() const override { return 4; }
    void load_scales(const Vec& v, const RegExp& at) override { e_.vmovups(v, e_.ptr[at]); }

private:
    int code_bytes() const { return 4 * quarters_of(key_) * chunk_bytes(); }
    int group_bytes() const { return kBlockTokens * 4; }
    int scales_bytes() const { return key_.scales_stride() * 4; }

    // So many are turned together, as a row's address is taken from a list for all of them.
    int quarters_a_step() const {
        const int quarters = quarters_of(key_);
        return quarters % 3 == 0 ? 3 : quarters % 2 == 0 ? 2 : 1;
    }

    void turn_codes(const Gpr& to, int first, const Gpr& row, const Gpr& fourth) {
        const int count = quarters_a_step(), steps = quarters_of(key_) / count;
        for (int step = 0; step < steps; ++step) {
            e_.stage("rows from " + std::to_string(first) + ", step " + std::to_string(step));
            emit_prefetches(first / 8 * steps + step, kBlockTokens / 8 * steps);
            std::vector<std::vector<Vec>> v;  // [count][4]
            for (int q = 0; q < count; ++q) v.push_back(e_.vecs("codes", 4));
            for (int t = 0; t < 4; ++t) {
                const RegExp low = rows_.in_turn(first + t, row), high = rows_.in_turn(first + t + 4, fourth);
                for (int q = 0; q < count; ++q) {
                    const int at = quarter_at(key_, step * count + q);
                    e_.load_quarters(v[size_t(q)][size_t(t)], {low + at, high + at});
                }
            }
            for (int q = 0; q < count; ++q) {
                e_.transpose_dwords(v[size_t(q)]);
                if (flips_)
                    for (const Vec& dwords : v[size_t(q)])
                        e_.vpxor(dwords, dwords, e_.splat_bits(0x88888888));
                const RegExp chunks = to + ((step * count + q) * 4 * chunk_bytes() + first * 4);
                store(chunks, chunk_bytes(), 4, v[size_t(q)]);
                if (raises_) {
                    for (const Vec& dwords : v[size_t(q)]) e_.vpslld(dwords, dwords, 4);
                    store(chunks + group_bytes(), chunk_bytes(), 4, v[size_t(q)]);
                }
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
            store(to + (group * group_bytes() + first * 4), group_bytes(), count, v);
            e_.free(v);
        }
    }

    void store(const RegExp& to, int stride, int count, const std::vector<Vec>& v) {
        for (int i = 0; i < count; ++i) e_.vmovups(e_.ptr[to + i * stride], v[size_t(i)]);
    }

    // The next turn's rows, where they are not one piece of memory, of which the processor itself reads
    // ahead.
    void emit_prefetches(int part, int parts) {
        if (!rows_.adjacent()) prefetch_.soon(rows_, kBlockTokens, part, parts);
        if (rows_a_part_ == 0) prefetch_.some(kBlockTokens, part, parts);
    }

    Emitter& e_;
    const RowKey key_;
    const bool raises_ = takes_tops(key_) && is_of_nibbles(key_.format);
    // Codes that mean themselves less eight, in place of two's complement.
    const bool flips_ = block_info(key_.format.type) && block_info(key_.format.type)->zero == 8;
    const int rows_a_part_;  // of the next block, that each part asks for; 0: a turn's beginning does
    RowList rows_;
    Prefetch prefetch_;
    const Gpr scales_ = e_.gpr("scales of rows");
};

// Codes of 8 or 4 bits with a sign, or with 8 that means 0, and one scale for each group.
bool can_turn(const RowKey& key) {
    if (key.target->vector_bits != 256 || key.query_bytes() != 0) return false;
    if (const BlockInfo* block = block_info(key.format.type))
        return !block->has_min && (block->code_bits == 8 || has_small_numbers(key.format));
    const bool codes = key.format.type == QUIRE_INT4 || key.format.type == QUIRE_INT8;
    return codes && key.row_bytes() % kQuarter == 0 && key.format.quant_group % 8 == 0;
}

// For what that pays (docs/performance.md, "Turned keys").
bool pays(const RowKey& key) {
    if (is_of_nibbles(key.format)) return !key.words() || (key.rows >= 2 && key.rows <= 8);
    return !key.words() && allows_tops(key.format) && key.rows >= 3 && key.dim <= 128 && !key.one_scale() &&
           scale_group(key.format) >= 16;
}

}  // namespace

bool turns_keys(const RowKey& key) { return can_turn(key) && pays(key); }

bool takes_tops(const RowKey& key) {
    return key.target->vector_bits == 256 && key.products == Products::floats && allows_tops(key.format) &&
           (token_block_info(key.format.type) || turns_keys(key));
}

std::unique_ptr<TokenKeys> make_turned_keys(Emitter& e, const RowKey& key, int parts) {
    return std::make_unique<TurnedKeys>(e, key, parts);
}

}  // namespace quire::jit
