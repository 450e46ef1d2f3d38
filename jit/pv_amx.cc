#include "jit/pv_amx.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "jit/amx.h"
#include "jit/pv_passes.h"
#include "jit/weights_amx.h"

namespace quire::jit {
namespace {

// A pass is of 64 bytes of the rows. A turn, of 16 keys:
//   tiles[j][step][row] = bytes of four keys each, of four bits low ones and high ones * 16  emit_turn
// At its end, for each up to 8 query rows, for each tile j, each up to 16 rows of weights:
//   sums[j] = weights of all steps * tiles[j]                                                emit_products
// and, of the last of those query rows behind the next pass's turns, as products take long:
//   output[r] = output[r] * rescale[r] + (digits of sums[j]) * unit * factors[r]             emit_outputs
//
// 128 * 128 * kBlock keys: 2^21, and 2^29 as higher digits' sums are.
class PvAmx : public PvPasses {
public:
    explicit PvAmx(const RowKey& key) : PvPasses(key), form_(key) {
        assert(sums_at() + tiles() * most_rows() * ValueAmx::kRowBytes <= kMostNumbers * vec_bytes());
        generate();
    }

private:
    using Tmm = Xbyak::Tmm;
    static constexpr int kTileRows = 16, kTileBytes = kTileRows * ValueAmx::kRowBytes;
    static constexpr int kRuns = 4;  // tiles of bytes, runs of 16 bytes

    int tiles() const { return form_.nibbles ? 2 * kRuns : kRuns; }
    int step_bytes() const { return tiles() * kTileBytes; }

    int rows_a_pass() const override { return key_.rows; }
    int widest(int) const override { return step(); }
    int step() const override { return ValueAmx::kRowBytes * (form_.nibbles ? 2 : 1) / lanes(); }
    int sums() const override { return 0; }
    int turn_bytes() const override { return 0; }
    int keys_a_turn() const override { return kKeyPadding; }
    bool asks_within() const override { return true; }

    int chunk_of(const Pass& pass) const { return pass.vec / step(); }
    static int runs_of(int bytes) { return bytes / ValueAmx::kRun; }

    // Rows of weights of a set of groups.
    int rows_of(const std::vector<int>& groups, int part) const {
        return (form_.place_of(groups.back()) - form_.place_of(groups.front()) + 1) * form_.digits *
               form_.rows_of(part);
    }
    int most_rows() const {
        int most = 0;
        for (int chunk = 0; chunk < form_.chunks(); ++chunk)
            for (int j = 0; j < kRuns; ++j) most = std::max(most, rows_of(form_.groups_of(chunk, j), 0));
        return most;
    }
    // Of a tile: as few tiles as they take, of equal sizes. Of fewer rows what is behind them is multiplied,
    // too, and not used.
    int tile_rows() const {
        const int most = most_rows(), count = (most + kTileRows - 1) / kTileRows;
        return (most + count - 1) / count;
    }
    // In scratch, behind the tiles of values.
    int sums_at() const { return ValueAmx::kSteps * step_bytes(); }
    int sums_at(int tile, int row) const {
        return sums_at() + (tile * std::max(most_rows(), tile_rows()) + row) * ValueAmx::kRowBytes;
    }

    void emit_start() override {
        stage("configuration");
        const TileShape rows{tile_rows(), ValueAmx::kRowBytes}, values{kTileRows, ValueAmx::kRowBytes};
        ldtilecfg(constant(tile_config({rows, rows, rows, rows, rows, rows, values, values})));
        mov(numbers_, ptr[args() + offsetof(PvArgs, numbers)]);
        for (int run = 1; run < kRuns; ++run) {
            mov(eax, 0xffff << 4 * run & 0xffff);
            kmovw(from_run(run), eax);
        }
    }
    static Xbyak::Opmask from_run(int run) { return Xbyak::Opmask(3 + run); }
    const Xbyak::Opmask of_row_{7};

    void emit_begin(const std::vector<Vec>&, const Pass& pass) override {
        xor_(at_, at_);
        if (const int bytes = form_.bytes_of(chunk_of(pass)); bytes < ValueAmx::kRowBytes) {
            mov(rax, (uint64_t(1) << bytes) - 1);
            kmovq(of_row_, rax);
        }
    }

    void emit_turn(const std::vector<Vec>&, const Pass& pass) override {
        for (int i = 0; i < kKeyPadding / 4; ++i) {
            emit_asks(pass, i, kKeyPadding / 4);
            stage("four keys");
            emit_four(4 * i, chunk_of(pass), numbers_ + at_ + 4 * i * ValueAmx::kRowBytes);
        }
        // Rows of a tile: ValueAmx::key_of.
        Label within;
        add(at_, ValueAmx::kRowBytes);
        test(at_, 4 * ValueAmx::kRowBytes - 1);
        jnz(within);
        add(at_, step_bytes() - 4 * ValueAmx::kRowBytes);
        L(within);
    }

    // Lane 4 i + m of vector j: byte 16 i + 4 j + m of four rows.
    void emit_four(int key, int chunk, const RegExp& to) {
        const std::vector<Vec> v = vecs("rows", 4);
        const bool whole = form_.bytes_of(chunk) == ValueAmx::kRowBytes;
        for (int i = 0; i < 4; ++i) {
            const Address row = ptr[rows_.in_turn(key + i, row_) + chunk * ValueAmx::kRowBytes];
            whole ? vmovups(v[size_t(i)], row) : vmovdqu8(v[size_t(i)] | of_row_ | T_z, row);
        }
        {
            Temp first(*this, "first two"), last(*this, "last two");
            const Vec &a = v[0], &b = v[1], &c = v[2], &d = v[3];
            vpunpcklbw(first, a, b);
            vpunpckhbw(a, a, b);
            vpunpcklbw(last, c, d);
            vpunpckhbw(c, c, d);
            vpunpckhwd(b, first, last);
            vpunpckhwd(d, a, c);
            vpunpcklwd(c, a, c);
            vpunpcklwd(a, first, last);
        }
        for (int j = 0; j < kRuns; ++j)
            form_.nibbles ? emit_nibbles(v[size_t(j)], j, to)
                          : vmovups(ptr[to + j * kTileBytes], v[size_t(j)]);
        free(v);
    }
    void emit_nibbles(const Vec& v, int j, const RegExp& to) {
        Temp low(*this, "low nibbles"), upper(*this, "upper bits");
        vmovups(upper, splat_bits(0xf0f0f0f0));
        vpsllw(low, v, 4);
        vpandd(low, low, upper);
        vpandd(v, v, upper);
        vmovups(ptr[to + j * kTileBytes], low);
        vmovups(ptr[to + (kRuns + j) * kTileBytes], v);
    }

    void emit_end(const std::vector<Vec>&, const Pass& pass) override {
        const int chunk = chunk_of(pass), last = form_.parts() - 1;
        const bool ends = chunk + 1 == form_.chunks();
        if (chunk > 0) emit_outputs(chunk - 1, last);
        for (int part = 0; part <= last; ++part) {
            emit_products(chunk, part);
            if (part < last || ends) emit_outputs(chunk, part);
        }
        if (ends) tilerelease();
    }

    // Tiles that follow each other and are of the same groups.
    void emit_products(int chunk, int part) {
        stage("products");
        mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
        mov(row_bytes_, ValueAmx::kRowBytes);
        for (int tile = 0; tile < tiles();) {
            const std::vector<int> groups = form_.groups_of(chunk, tile % kRuns);
            int count = 1;
            while (tile % kRuns + count < kRuns && form_.groups_of(chunk, tile % kRuns + count) == groups)
                ++count;
            emit_products(tile, count, groups, part);
            tile += count;
        }
    }
    void emit_products(int tile, int count, const std::vector<int>& groups, int part) {
        const int rows = rows_of(groups, part);
        for (int row = 0; row < rows; row += tile_rows()) {
            const int first = std::max(0, std::min(row, rows - tile_rows()));
            Label done;
            for (int i = 0; i < count; ++i) tilezero(Tmm(i));
            for (int step = 0; step < ValueAmx::kSteps; ++step) {
                if (step > 0) {
                    cmp(dword[args() + offsetof(PvArgs, count)], step * ValueAmx::kStepKeys);
                    jbe(done, T_NEAR);
                }
                const Tmm weights(4 + step % 2);
                tileloadd(weights, rows_at(weights_ + form_.weights_at(part, step, groups.front()) +
                                           first * ValueAmx::kRowBytes));
                for (int i = 0; i < count; ++i) {
                    const Tmm values(6 + i % 2);
                    tileloadd(values, rows_at(numbers_ + step * step_bytes() + (tile + i) * kTileBytes));
                    tdpbssd(Tmm(i), weights, values);
                }
            }
            L(done);
            for (int i = 0; i < count; ++i) tilestored(rows_at(numbers_ + sums_at(tile + i, first)), Tmm(i));
        }
    }
    Address rows_at(const RegExp& at) const { return ptr[at + row_bytes_]; }

    // These are set anew by the next pass.
    const Gpr& sums_at_ = count_;
    const Gpr& output_row_ = prefetch_end_;
    const Gpr& number_at_ = row_;

    void emit_outputs(int chunk, int part) {
        stage("outputs");
        const int first = form_.first_row(part), runs = runs_of(form_.bytes_of(chunk));
        mov(sums_at_, numbers_);
        lea(output_row_, ptr[output_at(first, chunk * step())]);
        mov(number_at_, first * 4);
        Label each;
        L(each);
        std::vector<Vec> numbers = emit_numbers(chunk, part, 0);
        if (form_.nibbles) {
            std::vector<Vec> high = emit_numbers(chunk, part, kRuns), all;
            for (int i = 0; i < kRuns; ++i) {
                interleave(numbers[size_t(i)], high[size_t(i)]);
                all.insert(all.end(), {numbers[size_t(i)], high[size_t(i)]});
            }
            numbers = all;
        }
        Temp rescale(*this, "rescale");
        broadcast(rescale, ptr[rescale_ + number_at_]);
        for (int i = 0; i < runs * int(numbers.size()) / kRuns; ++i) {
            const Address to = ptr[output_row_ + i * vec_bytes()];
            vfmadd231ps(numbers[size_t(i)], rescale, to);
            vmovups(to, numbers[size_t(i)]);
        }
        free(numbers);
        add(sums_at_, ValueAmx::kRowBytes);
        add(output_row_, key_.padded() * 4);
        add(number_at_, 4);
        cmp(number_at_, (first + form_.rows_of(part)) * 4);
        jb(each, T_NEAR);
    }

    // Of the four tiles from `tile` on, of one query row, in the order of bytes.
    std::vector<Vec> emit_numbers(int chunk, int part, int tile) {
        const std::vector<Vec> numbers = vecs("numbers", kRuns);
        Temp factor(*this, "factor");
        std::vector<int> of_factor;
        for (int j = 0; j < kRuns; ++j) {
            const std::vector<int> groups = form_.groups_of(chunk, j);
            emit_number(numbers[size_t(j)], tile + j, groups, part);
            if (groups != of_factor)
                for_each_group(
                    groups,
                    [&](int group, const Vec& lanes) {
                        vpbroadcastd(lanes, ptr[scales_ + number_at_ + form_.factor_at(group, 0)]);
                    },
                    factor);
            of_factor = groups;
            vmulps(numbers[size_t(j)], numbers[size_t(j)], factor);
        }
        transpose_quarters(numbers);
        return numbers;
    }

    // load() of each group's lanes of v, which has those of the groups before, too.
    template <typename Load>
    void for_each_group(const std::vector<int>& groups, const Load& load, const Vec& v) {
        for (size_t run = 0; run < groups.size(); ++run) {
            if (run == 0)
                load(groups[0], v);
            else if (groups[run] != groups[run - 1])
                load(groups[run], v | from_run(int(run)));
        }
    }

    void emit_number(const Vec& number, int tile, const std::vector<int>& groups, int part) {
        const std::vector<Vec> digits = vecs("digits", form_.digits - 1);
        const int first = form_.place_of(groups.front());
        const auto load = [&](const Vec& v, int digit) {
            for_each_group(
                groups,
                [&](int group, const Vec& lanes) {
                    const int row =
                        ((form_.place_of(group) - first) * form_.digits + digit) * form_.rows_of(part);
                    vmovups(lanes, ptr[sums_at_ + sums_at(tile, row)]);
                },
                v);
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
    const Gpr at_ = gpr("place in tiles"), row_bytes_ = gpr("row bytes");
};

}  // namespace

Status generate_pv_amx(const RowKey& key, std::vector<uint8_t>* code) { return PvAmx(key).finish(code); }

}  // namespace quire::jit
