#include "jit/pv_amx.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "jit/amx.h"
#include "jit/pv_passes.h"
#include "jit/weights_amx.h"

namespace quire::jit {
namespace {

// A pass is of some runs of 16 bytes of the rows. A turn, of 16 keys:
//   tiles[run][step][row] = bytes of four keys each, of four bits low ones and high ones * 16  emit_four
// At its end:
//   of the pass before, whose products have had that time, for each row r of its last part:
//     output[r] = output[r] * rescale[r] + (digits of sums[run]) * unit * factors[r]           emit_outputs
//   for each part of the rows, each tile, each up to 16 rows of weights:
//     sums[run] = weights of both steps * tiles[run]                                           emit_products
//   and of all parts but the last, or in the last pass of all: the outputs
//
// Few runs, so that scratch stays in the first-level cache beside the values, and few products at a time,
// which run beside the next pass: the processor looks only so far behind instructions that wait.
//
// 128 * 128 * kBlock keys: 2^21, and 2^29 as higher digits' sums are.
class PvAmx : public PvPasses {
public:
    explicit PvAmx(const RowKey& key) : PvPasses(key), form_(key) {
        assert(form_.fits(form_.rows_a_part));
        generate();
    }

private:
    using Tmm = Xbyak::Tmm;
    static constexpr int kTileRows = ValueAmx::kTileRows, kTileBytes = ValueAmx::kTileBytes;
    int rows_a_pass() const override { return key_.rows; }
    int widest(int) const override { return step(); }
    int step() const override { return form_.tiles(); }
    int sums() const override { return 0; }
    int turn_bytes() const override { return 0; }
    int keys_a_turn() const override { return kKeyPadding; }
    bool asks_within() const override { return true; }

    int chunk_of(const Pass& pass) const { return pass.vec / step(); }
    // Rows of weights of a set of groups.
    int rows_of(const std::vector<int>& groups, int part) const {
        return (groups.back() - groups.front() + 1) * form_.digits * form_.rows_of(part);
    }
    // Of fewer rows what is behind them is multiplied, too, and not used.
    int sums_at(int tile, int row) const {
        return form_.sums_at() + tile * form_.sums_bytes(form_.rows_a_part) + row * ValueAmx::kRowBytes;
    }

    void emit_start() override {
        mov(numbers_, ptr[args() + offsetof(PvArgs, numbers)]);
        mov(row_bytes_, ValueAmx::kRowBytes);
        for (int four = 1; four < 4; ++four) {
            mov(eax, 0xffff << 4 * four & 0xffff);
            kmovw(from_four(four), eax);
        }
        vmovups(order_, constant(bytes_of_four()));
    }
    static Xbyak::Opmask from_four(int i) { return Xbyak::Opmask(3 + i); }  // columns from 4 i on
    std::vector<uint32_t> bytes_of_four() const {
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < uint32_t(lanes()); ++i) order.push_back(0x30201000 + 0x01010101 * i);
        return order;
    }

    void emit_begin(const std::vector<Vec>&, const Pass&) override { xor_(at_, at_); }

    void emit_turn(const std::vector<Vec>&, const Pass& pass) override {
        const int chunk = chunk_of(pass);
        constexpr int kFours = kKeyPadding / 4;
        for (int i = 0; i < kFours; ++i) {
            emit_asks(pass, i, kFours);
            stage("four keys");
            emit_four(4 * i, chunk, numbers_ + at_ + 4 * i * ValueAmx::kRowBytes);
        }
        // Rows of a tile: ValueAmx::key_of.
        Label within;
        add(at_, ValueAmx::kRowBytes);
        test(at_, 4 * ValueAmx::kRowBytes - 1);
        jnz(within);
        add(at_, form_.tiles_step_bytes() - 4 * ValueAmx::kRowBytes);
        L(within);
    }

    // Lane i: byte i of a run of four rows.
    void emit_four(int key, int chunk, const RegExp& to) {
        const std::vector<Vec> v = vecs("runs", form_.runs_of(chunk));
        for (int i = 0; i < 4; ++i) {
            const RegExp row = rows_.in_turn(key + i, row_) + form_.first_run(chunk) * ValueAmx::kRun;
            for (int run = 0; run < int(v.size()); ++run) {
                const Xbyak::Zmm z(v[size_t(run)].getIdx());
                const Address at = ptr[row + run * ValueAmx::kRun];
                i == 0 ? vmovdqu(Xbyak::Xmm(z.getIdx()), at) : vinserti32x4(z, z, at, uint8_t(i));
            }
        }
        for (int run = 0; run < int(v.size()); ++run) {
            const Vec& of_run = v[size_t(run)];
            vpermb(of_run, order_, of_run);
            form_.nibbles ? emit_nibbles(of_run, to + 2 * run * kTileBytes)
                          : vmovups(ptr[to + run * kTileBytes], of_run);
        }
        free(v);
    }
    void emit_nibbles(const Vec& v, const RegExp& to) {
        Temp low(*this, "low nibbles"), upper(*this, "upper bits");
        vmovups(upper, splat_bits(0xf0f0f0f0));
        vpsllw(low, v, 4);
        vpandd(low, low, upper);
        vpandd(v, v, upper);
        vmovups(ptr[to], low);
        vmovups(ptr[to + kTileBytes], v);
    }

    void emit_end(const std::vector<Vec>&, const Pass& pass) override {
        const int chunk = chunk_of(pass), last = form_.parts() - 1;
        const bool ends = chunk + 1 == form_.chunks();
        if (chunk > 0) emit_outputs(chunk - 1, last);
        for (int part = 0; part <= last; ++part) {
            emit_products(chunk, part);
            if (part < last || ends) emit_outputs(chunk, part);
        }
    }

    // Sums of up to 16 rows of weights and one tile of values. Bytes from the beginning of weights, the
    // others of scratch.
    struct Item {
        int weights, values, sums;
    };
    std::vector<Item> items_of(int chunk, int part) const {
        std::vector<Item> items;
        for (int tile = 0; tile < form_.runs_of(chunk) * form_.tiles_of_run(); ++tile) {
            const std::vector<int> groups =
                form_.groups_of(form_.first_run(chunk) + tile / form_.tiles_of_run());
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
    void emit_products(int chunk, int part) {
        stage("products");
        const std::vector<Item> items = items_of(chunk, part);
        const auto store = [&](size_t i) { tilestored(rows_at(numbers_ + items[i].sums), Tmm(int(i % 2))); };
        for (size_t i = 0; i < items.size(); ++i) {
            const Item &item = items[i], &last = items[i > 0 ? i - 1 : 0];
            const Tmm sum(int(i % 2));
            tilezero(sum);
            for (int step = 0; step < ValueAmx::kSteps; ++step) {
                const Tmm weights(2 + step), values(4 + step);
                if (i == 0 || item.weights != last.weights)
                    tileloadd(weights, rows_at(weights_ + item.weights + step * form_.step_bytes(part)));
                if (i == 0 || item.values != last.values)
                    tileloadd(values, rows_at(numbers_ + item.values + step * form_.tiles_step_bytes()));
                tdpbssd(sum, weights, values);
            }
            if (i > 0) store(i - 1);
        }
        store(items.size() - 1);
    }
    Address rows_at(const RegExp& at) const { return ptr[at + row_bytes_]; }

    // These are set anew by the next pass.
    const Gpr& sums_at_ = count_;
    const Gpr& output_row_ = prefetch_end_;
    const Gpr& number_at_ = row_;

    void emit_outputs(int chunk, int part) {
        stage("outputs");
        const int first = form_.first_row(part);
        mov(sums_at_, numbers_);
        lea(output_row_, ptr[output_at(first, chunk * step())]);
        mov(number_at_, first * 4);
        Label each;
        L(each);
        {
            Temp rescale(*this, "rescale");
            broadcast(rescale, ptr[rescale_ + number_at_]);
            for (int run = 0; run < form_.runs_of(chunk); ++run)
                emit_run(form_.groups_of(form_.first_run(chunk) + run), run * form_.tiles_of_run(), part,
                         rescale);
        }
        add(sums_at_, ValueAmx::kRowBytes);
        add(output_row_, key_.padded() * 4);
        add(number_at_, 4);
        cmp(number_at_, (first + form_.rows_of(part)) * 4);
        jb(each, T_NEAR);
    }

    void emit_run(const std::vector<int>& groups, int tile, int part, const Vec& rescale) {
        const std::vector<Vec> numbers = vecs("numbers", form_.tiles_of_run());
        Temp factor(*this, "factor");
        for_each_group(factor, groups, [&](int group, const Vec& columns) {
            vpbroadcastd(columns, ptr[scales_ + number_at_ + form_.factor_at(group, 0)]);
        });
        for (int i = 0; i < int(numbers.size()); ++i) {
            emit_number(numbers[size_t(i)], tile + i, groups, part);
            vmulps(numbers[size_t(i)], numbers[size_t(i)], factor);
        }
        if (form_.nibbles) interleave(numbers[0], numbers[1]);
        for (int i = 0; i < int(numbers.size()); ++i) {
            const Address to = ptr[output_row_ + (tile + i) * vec_bytes()];
            vfmadd231ps(numbers[size_t(i)], rescale, to);
            vmovups(to, numbers[size_t(i)]);
        }
        free(numbers);
    }

    // load() of each group's columns of v, which has those of the groups before, too.
    template <typename Load>
    void for_each_group(const Vec& v, const std::vector<int>& groups, const Load& load) {
        load(groups[0], v);
        for (size_t i = 1; i < groups.size(); ++i)
            if (groups[i] != groups[i - 1]) load(groups[i], v | from_four(int(i)));
    }

    void emit_number(const Vec& number, int tile, const std::vector<int>& groups, int part) {
        const std::vector<Vec> digits = vecs("digits", form_.digits - 1);
        const auto load = [&](const Vec& v, int digit) {
            for_each_group(v, groups, [&](int group, const Vec& columns) {
                const int row = ((group - groups.front()) * form_.digits + digit) * form_.rows_of(part);
                vmovups(columns, ptr[sums_at_ + sums_at(tile, row)]);
            });
        };
        load(number, form_.digits - 1);
        for (int digit = 0; digit < form_.digits - 1; ++digit) load(digits[size_t(digit)], digit);
        vpslld(number, number, 8);
        vpaddd(number, number, digits.back());
        vcvtdq2ps(number, number);
        if (form_.digits == 3) {
            vcvtdq2ps(digits[0], digits[0]);
            vfmadd132ps(number, digits[0], splat(256));
        }
        vmulps(number, number, splat(form_.unit()));
        free(digits);
    }

    const ValueAmx form_;
    const Vec order_ = vec("order");
    const Gpr at_ = gpr("place in tiles"), row_bytes_ = gpr("row bytes");
};

}  // namespace

Status generate_pv_amx(const RowKey& key, std::vector<uint8_t>* code) { return PvAmx(key).finish(code); }

}  // namespace quire::jit
