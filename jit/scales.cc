#include "jit/scales.h"

#include <algorithm>
#include <cstddef>

#include "jit/args.h"
#include "jit/byte_loader.h"
#include "jit/row_list.h"

namespace quire::jit {
namespace {

// for key in 0..count step T:                             emit_rows
//   for g in 0..D/G: out[key + t][g] = float(rows[key + t][g])        of blocks: {d, m} or d of block g
//                    (minima apart: -m / zero - d, behind all scales)  emit_halves
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
        const int turn = is_one_list() ? kKeyPadding : kUnroll;
        Label each_turn;
        L(each_turn);
        row_.clear();
        rows_.turn(address_[0]);
        is_one_list() ? emit_list() : emit_turn();
        rows_.move(turn);
        add(out_, key_.scales_stride() * 4 * turn);
        sub(count_, turn);
        jnz(each_turn, T_NEAR);
        end();
    }

private:
    static constexpr int kUnroll = 4;
    static_assert(kKeyPadding % kUnroll == 0);  // a turn is of one run

    RegExp out_at(int row, int group) const {
        return out_ + (row * key_.scales_stride() + group * key_.numbers()) * 4;
    }

    // Scales of adjacent rows follow each other: whole vectors, as they lie or spread over each row's floats.
    bool is_one_list() const { return rows_.side_by_side() && !block_; }
    void emit_list() {
        stage("scales of " + std::to_string(kKeyPadding) + " rows");
        row_.push_back(rows_.in_turn(0, address_[0]));
        static_assert(kKeyPadding % 16 == 0);  // the most lanes
        const bool spreads = key_.groups() != key_.scales_stride();
        for (int first = 0; first < kKeyPadding * key_.scales_stride(); first += lanes()) {
            Temp factors(*this, "factors");
            spreads ? load_spread(factors, first)
                    : load_number(key_.format.scale_type, factors, halves_at(0, first), lanes());
            store(0, first, factors);
        }
    }

    // Of the floats of a turn those from `first` on: 16 bytes of scales at a time, which are not beyond the
    // turn's, and their bytes put in place; where no scale belongs a 0.
    void load_spread(const Vec& factors, int first) {
        const int size = type_bits(key_.format.scale_type) / 8, stride = key_.scales_stride();
        const int last = kKeyPadding * key_.scale_bytes() - 16;
        const auto source = [&](int i) { return (i / stride * key_.groups() + i % stride) * size; };
        std::vector<RegExp> at;
        std::vector<uint32_t> order(size_t(lanes()), 0x80808080);
        auto* place = reinterpret_cast<uint8_t*>(order.data());
        for (int i = first; i < first + lanes(); ++i) {
            const int begin = first + (i - first) / (16 / size) * (16 / size);
            const int from = std::min(source(begin), last);
            if (i == begin) at.push_back(row_[0] + from);
            for (int j = 0; j < size; ++j, ++place)
                if (i % stride < key_.groups()) *place = uint8_t(source(i) - from + j);
        }
        load_quarters(factors, at);
        vpshufb(factors, factors, constant(order));
        if (key_.format.scale_type == QUIRE_F16) halves_to_floats(factors);
    }

    void emit_turn() {
        const int together = rows_together();
        for (int i = 0; i < kUnroll; ++i) row_.push_back(rows_.in_turn(i, address_[size_t(i)]));
        for (int i = 0; i < kUnroll; i += together) together > 1 ? emit_rows(i, together) : emit_row(i);
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
        emit_halves(first, 0, at, block_ ? key_.numbers() : key_.groups());
    }

    void emit_row(int i) {
        stage("row " + std::to_string(i));
        const int step = lanes() / key_.numbers();
        for (int g = 0; g < key_.groups(); g += step) {
            emit_load(i, g, std::min(step, key_.groups() - g));
        }
    }

    void store(int row, int group, const Vec& factors) {
        if (key_.products != Products::floats) inf_to_nan(factors);
        vmovups(ptr[out_at(row, group)], factors);
    }

    void emit_load(int i, int group, int count) {
        if (block_) {
            std::vector<RegExp> at;
            for (int g = group; g < group + count; ++g) at.push_back(halves_at(i, g));
            return emit_halves(i, group, at, key_.numbers());
        }
        Temp factors(*this, "factors");
        load_number(key_.format.scale_type, factors, halves_at(i, group), count);
        store(i, group, factors);
    }

    // `each` numbers of every address; minima that go apart.
    void emit_halves(int row, int group, std::vector<RegExp> at, int each) {
        Temp factors(*this, "factors");
        load_halves(factors, at, each);
        store(row, group, factors);
        if (!key_.has_minima_apart()) return;
        for (RegExp& of_group : at) of_group = of_group + 2;
        Temp minima(*this, "minima");
        load_halves(minima, at, 1);
        vmulps(minima, minima, splat(-1.f / float(byte_zero(key_.format))));
        vsubps(minima, minima, factors);
        vmovups(ptr[out_at(row, group) + key_.minima_at() * 4], *minima);
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
