#include "jit/pv_amx_tiles.h"

#include <algorithm>
#include <cassert>

namespace quire::jit {

PvAmxTiles::PvAmxTiles(Emitter& e, const RowKey& key)
    : e_(e), padded_(key.padded()), form_(key), row_bytes_(e.gpr("row bytes")) {
    assert(form_.fits(form_.rows_a_part));
}

void PvAmxTiles::set_up(const Registers& registers) {
    use_ = registers;
    e_.mov(row_bytes_, ValueAmx::kRowBytes);
    for (int four = 1; four < 4; ++four) {
        e_.mov(e_.eax, 0xffff << 4 * four & 0xffff);
        e_.kmovw(from_four(four), e_.eax);
    }
}

// Rows of a tile: ValueAmx::key_of.
void PvAmxTiles::next_turn() {
    Label within;
    e_.add(use_.at, ValueAmx::kRowBytes);
    e_.test(use_.at, 4 * ValueAmx::kRowBytes - 1);
    e_.jnz(within);
    e_.add(use_.at, form_.tiles_step_bytes() - 4 * ValueAmx::kRowBytes);
    e_.L(within);
}

void PvAmxTiles::end_chunk(int chunk, const Ask& ask) {
    const int last = form_.parts() - 1;
    const bool ends = chunk + 1 == form_.chunks();
    if (chunk > 0) emit_outputs(chunk - 1, last);
    for (int part = 0; part <= last; ++part) {
        emit_products(chunk, part, part == 0 ? ask : nullptr);
        if (part < last || ends) emit_outputs(chunk, part);
    }
}

std::vector<PvAmxTiles::Item> PvAmxTiles::items_of(int chunk, int part) const {
    std::vector<Item> items;
    for (int tile = 0; tile < form_.runs_of(chunk) * form_.tiles_of_run(); ++tile) {
        const std::vector<int> groups = form_.groups_of(form_.first_run(chunk) + tile / form_.tiles_of_run());
        const int rows = rows_of(groups, part);
        for (int row = 0; row < rows; row += kTileRows) {
            const int first = std::max(0, std::min(row, rows - kTileRows));
            items.push_back({form_.weights_at(part, 0, groups.front()) + first * ValueAmx::kRowBytes,
                             tile * kTileBytes, sums_at(tile, first)});
        }
    }
    return items;
}

// A sum is stored beside the next one's products. What two in a row have in common is loaded once.
void PvAmxTiles::emit_products(int chunk, int part, const Ask& ask) {
    e_.stage("products");
    const std::vector<Item> items = items_of(chunk, part);
    const auto store = [&](size_t i) {
        e_.tilestored(rows_at(use_.numbers + items[i].sums), Tmm(int(i % 2)));
    };
    for (size_t i = 0; i < items.size(); ++i) {
        const Item &item = items[i], &last = items[i > 0 ? i - 1 : 0];
        const Tmm sum(int(i % 2));
        e_.tilezero(sum);
        for (int step = 0; step < ValueAmx::kSteps; ++step) {
            const Tmm weights(2 + step), values(4 + step);
            if (i == 0 || item.weights != last.weights)
                e_.tileloadd(weights, rows_at(use_.weights + item.weights + step * form_.step_bytes(part)));
            if (i == 0 || item.values != last.values)
                e_.tileloadd(values, rows_at(use_.numbers + item.values + step * form_.tiles_step_bytes()));
            e_.tdpbssd(sum, weights, values);
        }
        if (ask) ask(int(i), int(items.size()));
        if (i > 0) store(i - 1);
    }
    store(items.size() - 1);
}

void PvAmxTiles::emit_outputs(int chunk, int part) {
    e_.stage("outputs");
    const int first = form_.first_row(part), column = chunk * form_.tiles() * 16;
    e_.mov(use_.sums_at, use_.numbers);
    e_.lea(use_.output_row, e_.ptr[use_.output + (first * padded_ + column) * 4]);
    e_.mov(use_.number_at, first * 4);
    Label each;
    e_.L(each);
    {
        Temp rescale(e_, "rescale");
        e_.broadcast(rescale, e_.ptr[use_.rescale + use_.number_at]);
        for (int run = 0; run < form_.runs_of(chunk); ++run)
            emit_run(form_.groups_of(form_.first_run(chunk) + run), run * form_.tiles_of_run(), part,
                     rescale);
    }
    e_.add(use_.sums_at, ValueAmx::kRowBytes);
    e_.add(use_.output_row, padded_ * 4);
    e_.add(use_.number_at, 4);
    e_.cmp(use_.number_at, (first + form_.rows_of(part)) * 4);
    e_.jb(each, e_.T_NEAR);
}

void PvAmxTiles::emit_run(const std::vector<int>& groups, int tile, int part, const Vec& rescale) {
    const std::vector<Vec> numbers = e_.vecs("numbers", form_.tiles_of_run());
    Temp factor(e_, "factor");
    for_each_group(factor, groups, [&](int group, const Vec& columns) {
        e_.vpbroadcastd(columns, e_.ptr[use_.scales + use_.number_at + form_.factor_at(group, 0)]);
    });
    for (int i = 0; i < int(numbers.size()); ++i) {
        emit_number(numbers[size_t(i)], tile + i, groups, part);
        e_.vmulps(numbers[size_t(i)], numbers[size_t(i)], factor);
    }
    if (numbers.size() == 2) e_.interleave(numbers[0], numbers[1]);
    for (int i = 0; i < int(numbers.size()); ++i) {
        const Address to = e_.ptr[use_.output_row + (tile + i) * e_.vec_bytes()];
        e_.vfmadd231ps(numbers[size_t(i)], rescale, to);
        e_.vmovups(to, numbers[size_t(i)]);
    }
    e_.free(numbers);
}

// load() of each group's columns of v, which has those of the groups before, too.
template <typename Load>
void PvAmxTiles::for_each_group(const Vec& v, const std::vector<int>& groups, const Load& load) {
    load(groups[0], v);
    for (size_t i = 1; i < groups.size(); ++i)
        if (groups[i] != groups[i - 1]) load(groups[i], v | from_four(int(i)));
}

void PvAmxTiles::emit_number(const Vec& number, int tile, const std::vector<int>& groups, int part) {
    const std::vector<Vec> digits = e_.vecs("digits", form_.digits - 1);
    const auto load = [&](const Vec& v, int digit) {
        for_each_group(v, groups, [&](int group, const Vec& columns) {
            const int row = ((group - groups.front()) * form_.digits + digit) * form_.rows_of(part);
            e_.vmovups(columns, e_.ptr[use_.sums_at + sums_at(tile, row)]);
        });
    };
    load(number, form_.digits - 1);
    for (int digit = 0; digit < form_.digits - 1; ++digit) load(digits[size_t(digit)], digit);
    e_.vpslld(number, number, 8);
    e_.vpaddd(number, number, digits.back());
    e_.vcvtdq2ps(number, number);
    if (form_.digits == 3) {
        e_.vcvtdq2ps(digits[0], digits[0]);
        e_.vfmadd132ps(number, digits[0], e_.splat(256));
    }
    e_.vmulps(number, number, e_.splat(form_.unit()));
    e_.free(digits);
}

}  // namespace quire::jit
