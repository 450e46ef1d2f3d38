// Values with their scales by weights of many query rows.
#include <cstddef>

#include "jit/pv_passes.h"
#include "jit/scaled_amx.h"
#include "jit/upper_nibbles.h"

namespace quire::jit {
namespace {

// A pass is of some runs of 16 bytes of the rows. A turn, of 16 keys:
//   tiles[step][tile][digit] = digits of the codes of four keys times their groups' shares    emit_four
// At its end, of the pass before, whose products have had that time, and in the last pass of its own, too:
//   output[r] = output[r] * rescale[r] + (sums together) * factors[group][r]                  emit_outputs
// and between them:
//   sums[tile] = weights of both digits and steps * tiles[tile]                               emit_products
class PvScaledAmx : public PvPasses {
public:
    explicit PvScaledAmx(const RowKey& key) : PvPasses(key), form_(key), digits_(*this) { generate(); }

private:
    using Form = ScaledValueAmx;
    using Tmm = Xbyak::Tmm;
    int rows_a_pass() const override { return key_.rows; }
    int widest(int) const override { return step(); }
    int step() const override { return Form::kTiles; }
    int sums() const override { return 0; }
    int turn_bytes() const override { return 0; }
    int keys_a_turn() const override { return kKeyPadding; }
    bool asks_within() const override { return true; }
    int pass_of(const Pass& pass) const { return pass.vec / step(); }

    void emit_start() override {
        digits_.set();
        mov(numbers_, ptr[args() + offsetof(PvArgs, numbers)]);
        // Each lane: a byte of four rows; or of rows 0 and 2, or 1 and 3, above 0.
        std::vector<uint32_t> fours, even, odd;
        for (int column = 0; column < 16; ++column) {
            const uint32_t i = uint32_t(form_.byte_of_column(column));
            fours.push_back(0x30201000 + 0x01010101 * i);
            even.push_back(0x20000000 + 0x01000100 * i);
            odd.push_back(0x30001000 + 0x01000100 * i);
        }
        if (form_.parts == 2) {
            vmovups(order_, constant(fours));
            return vmovups(upper_, splat_bits(0xf0f0f0f0));
        }
        vmovups(order_, constant(even));
        vmovups(upper_, constant(odd));
        mov(eax, 0xaaaaaaaa);
        kmovd(odd_bytes_, eax);
        kunpckdq(odd_bytes_, odd_bytes_, odd_bytes_);
    }

    void emit_begin(const std::vector<Vec>&, const Pass&) override {
        xor_(at_, at_);
        mov(shares_, ptr[args() + offsetof(PvArgs, probabilities)]);
        add(shares_, Form::shares_at());
    }

    void emit_turn(const std::vector<Vec>&, const Pass& pass) override {
        constexpr int kFours = kKeyPadding / 4;
        for (int four = 0; four < kFours; ++four) {
            emit_asks(pass, four, kFours);
            stage("four keys");
            emit_four(four, pass_of(pass));
        }
        add(shares_, kFours * form_.four_bytes());
        // Rows of a tile: ValueAmx::key_of.
        constexpr int kRow = ScaledAmx::kTileRow;
        Label within;
        add(at_, kRow);
        test(at_, 4 * kRow - 1);
        jnz(within);
        add(at_, Form::tile_at(1, 0, 0) - 4 * kRow);
        L(within);
    }

    void emit_four(int four, int pass) {
        const int first = pass * form_.runs_a_pass(), count = form_.runs_of(pass);
        const std::vector<Vec> codes = vecs("codes of four keys", count);
        for (int i = 0; i < 4; ++i) {
            const RegExp row = rows_.in_turn(4 * four + i, row_) + first * Form::kRun;
            for (int run = 0; run < count; ++run) {
                const Xbyak::Zmm z(codes[size_t(run)].getIdx());
                const Address at = ptr[row + run * Form::kRun];
                i == 0 ? vmovdqu(Xbyak::Xmm(z.getIdx()), at) : vinserti32x4(z, z, at, uint8_t(i));
            }
        }
        Temp even(*this, "shares"), odd(*this, "shares of odd keys");
        for (int run = 0, before = -1; run < count; ++run) {
            const Vec& v = codes[size_t(run)];
            const int group = form_.group_of_run(first + run);
            const RegExp share = shares_ + four * form_.four_bytes() + group * 4;
            if (group != before) load_of_groups(even, share);
            if (group != before) load_of_groups(odd, share + form_.share_stride() * 4);
            before = group;
            Temp of_even(*this, "even ones"), of_odd(*this, "odd ones");
            if (form_.parts == 1) {
                vpermb(*of_even | odd_bytes_ | T_z, order_, v);
                vpermb(*of_odd | odd_bytes_ | T_z, upper_, v);
                store_digits(of_even, of_odd, even, odd, four, run);
                continue;
            }
            vpermb(v, order_, v);
            Temp low(*this, "low nibbles");  // times 16
            part_nibbles(*this, low, v, upper_);
            digits_.part(of_even, of_odd, low);
            store_digits(of_even, of_odd, even, odd, four, 2 * run);
            digits_.part(of_even, of_odd, v);
            store_digits(of_even, of_odd, even, odd, four, 2 * run + 1);
        }
        free(codes);
    }
    // A dword of each group of a run.
    void load_of_groups(const Vec& v, const RegExp& at) {
        const Xbyak::Zmm z(v.getIdx());
        switch (form_.groups_of_run()) {
            case 1: return vpbroadcastd(z, ptr[at]);
            case 2: return vpbroadcastq(z, ptr[at]);
            default: return vbroadcasti32x4(z, ptr[at]);
        }
    }
    void store_digits(const Vec& of_even, const Vec& of_odd, const Vec& even, const Vec& odd, int four,
                      int tile) {
        Temp high(*this, "upper digits");
        digits_.scale(high, of_even, of_odd, even, odd);
        const RegExp to = numbers_ + at_ + 4 * four * ScaledAmx::kTileRow;
        vmovups(ptr[to + Form::tile_at(0, tile, 0)], *high);
        vmovups(ptr[to + Form::tile_at(0, tile, 1)], of_odd);
    }

    void emit_end(const std::vector<Vec>&, const Pass& pass) override {
        const int at = pass_of(pass), tiles = tiles_of(at);
        mov(rax, ScaledAmx::kTileRow);
        if (at == 0) load_weights();
        if (at > 0) store_sums(tiles_of(at - 1) - 1);
        emit_products(0);
        if (at > 0) emit_outputs(at - 1);
        mov(rax, ScaledAmx::kTileRow);
        for (int tile = 1; tile < tiles; ++tile) {
            store_sums(tile - 1);
            emit_products(tile);
        }
        if (at + 1 < form_.passes()) return;
        store_sums(tiles - 1);
        emit_outputs(at);
    }

    int tiles_of(int pass) const { return form_.runs_of(pass) * form_.parts; }
    static Tmm sum(int i) { return Tmm(i); }
    static Tmm weights_of(int step, int digit) { return Tmm(4 + step * ScaledAmx::kDigits + digit); }
    void load_weights() {
        for (int step = 0; step < Form::kSteps; ++step)
            for (int digit = 0; digit < ScaledAmx::kDigits; ++digit)
                tileloadd(weights_of(step, digit), ptr[weights_ + Form::weights_at(step, digit) + rax]);
    }
    void emit_products(int tile) {
        stage("products of tile " + std::to_string(tile));
        const Tmm values(3);
        for (int i = 0; i < ScaledAmx::kSums; ++i) tilezero(sum(i));
        for (int step = 0; step < Form::kSteps; ++step) {
            const Tmm low = weights_of(step, 0), high = weights_of(step, 1);
            tileloadd(values, ptr[numbers_ + Form::tile_at(step, tile, 0) + rax]);
            tdpbssd(sum(0), high, values);
            tdpbssd(sum(1), low, values);
            tileloadd(values, ptr[numbers_ + Form::tile_at(step, tile, 1) + rax]);
            tdpbsud(sum(1), high, values);
            tdpbsud(sum(2), low, values);
        }
    }
    void store_sums(int tile) {
        for (int i = 0; i < ScaledAmx::kSums; ++i)
            tilestored(ptr[numbers_ + Form::sum_at(tile, i) + rax], sum(i));
    }

    // These are set anew by the next pass.
    const Gpr& sums_at_ = count_;
    const Gpr& output_row_ = prefetch_end_;
    const Gpr& number_at_ = row_;

    void emit_outputs(int pass) {
        stage("outputs");
        mov(sums_at_, numbers_);
        mov(scales_, ptr[args() + offsetof(PvArgs, scales)]);
        lea(output_row_, ptr[output_at(0, pass * step())]);
        xor_(number_at_, number_at_);
        Label each;
        L(each);
        {
            Temp rescale(*this, "rescale");
            broadcast(rescale, ptr[rescale_ + number_at_]);
            for (int run = 0; run < form_.runs_of(pass); ++run) emit_run(pass, run, rescale);
        }
        add(sums_at_, ScaledAmx::kTileRow);
        add(output_row_, key_.padded() * 4);
        add(number_at_, 4);
        add(scales_, form_.factor_stride() * 4);
        cmp(number_at_, form_.rows * 4);
        jb(each, T_NEAR);
    }
    void emit_run(int pass, int run, const Vec& rescale) {
        const std::vector<Vec> numbers = vecs("numbers", form_.parts);
        const int group = form_.group_of_run(pass * form_.runs_a_pass() + run);
        Temp factor(*this, "factor");
        load_of_groups(factor, scales_ + group * 4);
        for (int i = 0; i < form_.parts; ++i) {
            emit_total(numbers[size_t(i)], run * form_.parts + i);
            vmulps(numbers[size_t(i)], numbers[size_t(i)], factor);
            if (form_.groups_of_run() > 1) permute(numbers[size_t(i)], columns());
        }
        if (form_.parts == 2) interleave(numbers[0], numbers[1]);
        for (int i = 0; i < form_.parts; ++i) {
            const Address to = ptr[output_row_ + (run * form_.parts + i) * vec_bytes()];
            vfmadd231ps(numbers[size_t(i)], rescale, to);
            vmovups(to, numbers[size_t(i)]);
        }
        free(numbers);
    }
    // In the order of bytes.
    std::vector<uint32_t> columns() const {
        std::vector<uint32_t> order(16);
        for (uint32_t column = 0; column < 16; ++column)
            order[size_t(form_.byte_of_column(int(column)))] = column;
        return order;
    }
    void emit_total(const Vec& total, int tile) {
        Temp low(*this, "low");
        const auto at = [&](int sum) { return ptr[sums_at_ + Form::sum_at(tile, sum)]; };
        vpslld(total, at(0), 8);
        vpsrad(low, at(2), 8);
        vpaddd(total, total, at(1));
        vpaddd(total, total, low);
        vcvtdq2ps(total, total);
        vmulps(total, total, splat(256));
    }

    const Form form_;
    const ScaledDigits digits_;
    const Vec order_ = vec("order"), upper_ = vec("upper nibbles");
    const Xbyak::Opmask odd_bytes_{3};
    const Gpr at_ = gpr("place in tiles"), shares_ = gpr("shares");
};

}  // namespace

Status generate_pv_scaled_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return PvScaledAmx(key).finish(code);
}

}  // namespace quire::jit
