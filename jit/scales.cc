#include "jit/scales.h"

#include <algorithm>
#include <cstddef>

#include "jit/args.h"
#include "jit/row_list.h"

namespace quire::jit {
namespace {

// for key in 0..count step T:                             emit_rows
//   for g in 0..D/G: out[key + t][g] = float(rows[key + t][g])        of blocks: {d, m} or d of block g
//
// Of adjacent rows whole vectors, as they lie            emit_list
//
// As many rows T as fit one vector, or one row of several; what a store writes beyond is written again.
class Scales : public Emitter {
public:
    explicit Scales(const RowKey& key)
        : Emitter(*key.target), key_(key), block_(block_info(key.format.type)) {
        begin();
        for (int i = 0; i < kUnroll; ++i)
            address_.push_back(rows_.adjacent() ? Gpr() : gpr("row " + std::to_string(i)));
        rows_.set(args() + offsetof(ScalesArgs, rows));
        mov(out_, ptr[args() + offsetof(ScalesArgs, out)]);
        mov(count_, ptr[args() + offsetof(ScalesArgs, count)]);
        const int together = rows_together();
        Label each_turn;
        L(each_turn);
        row_.clear();
        rows_.turn(address_[0]);
        for (int i = 0; i < kUnroll; ++i) row_.push_back(rows_.in_turn(i, address_[size_t(i)]));
        if (is_one_list())
            emit_list();
        else
            for (int i = 0; i < kUnroll; i += together) together > 1 ? emit_rows(i, together) : emit_row(i);
        rows_.move(kUnroll);
        add(out_, key_.scales_stride() * 4 * kUnroll);
        sub(count_, kUnroll);
        jnz(each_turn, T_NEAR);
        end();
    }

private:
    static constexpr int kUnroll = 4;
    static_assert(kKeyPadding % kUnroll == 0);  // a turn is of one run

    RegExp out_at(int row, int group) const {
        return out_ + (row * key_.scales_stride() + group * key_.numbers()) * 4;
    }

    // Scales of adjacent rows, written as they lie: whole vectors of a turn.
    bool is_one_list() const {
        return rows_.side_by_side() && !block_ && key_.groups() == key_.scales_stride() &&
               kUnroll * key_.groups() % lanes() == 0;
    }
    void emit_list() {
        stage("scales of " + std::to_string(kUnroll) + " rows");
        for (int first = 0; first < kUnroll * key_.groups(); first += lanes()) {
            Temp factors(*this, "factors");
            load_number(key_.format.scale_type, factors, halves_at(0, first), lanes());
            store(0, first, factors);
        }
    }

    int rows_together() const {
        const int numbers = key_.groups() * key_.numbers();
        if (numbers != key_.scales_stride()) return 1;
        if (!block_ && (key_.format.scale_type != QUIRE_F16 || numbers > 4)) return 1;
        int rows = kUnroll;
        while (rows > 1 && rows * numbers > lanes()) rows /= 2;
        return rows;
    }

    void emit_rows(int first, int count) {
        stage("rows from " + std::to_string(first));
        std::vector<RegExp> at;
        for (int i = first; i < first + count; ++i)
            for (int g = 0; g < (block_ ? key_.groups() : 1); ++g) at.push_back(halves_at(i, g));
        Temp factors(*this, "factors");
        load_halves(factors, at, block_ ? block_->numbers() : key_.groups());
        store(first, 0, factors);
    }

    void emit_row(int i) {
        stage("row " + std::to_string(i));
        const int step = lanes() / key_.numbers();
        for (int g = 0; g < key_.groups(); g += step) {
            Temp factors(*this, "factors");
            emit_load(factors, i, g, std::min(step, key_.groups() - g));
            store(i, g, factors);
        }
    }

    void store(int row, int group, const Vec& factors) {
        if (key_.products != Products::floats) inf_to_nan(factors);
        vmovups(ptr[out_at(row, group)], factors);
    }

    void emit_load(const Vec& factors, int i, int group, int count) {
        if (!block_) return load_number(key_.format.scale_type, factors, halves_at(i, group), count);
        std::vector<RegExp> at;
        for (int g = group; g < group + count; ++g) at.push_back(halves_at(i, g));
        load_halves(factors, at, block_->numbers());
    }

    RegExp halves_at(int i, int group) const {
        return row_[size_t(i)] + group * (block_ ? block_->bytes : type_bits(key_.format.scale_type) / 8);
    }

    const RowKey key_;
    const BlockInfo* const block_;
    RowList rows_{*this, key_, block_ ? key_.row_bytes() : key_.scale_bytes(), "rows"};
    const Gpr out_ = gpr("out"), count_ = gpr("count");
    std::vector<Gpr> address_;  // [kUnroll]
    std::vector<RegExp> row_;   // of the turn at hand
};

}  // namespace

Status generate_scales(const RowKey& key, std::vector<uint8_t>* code) { return Scales(key).finish(code); }

}  // namespace quire::jit
