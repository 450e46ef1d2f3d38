#include "jit/pv_fours.h"

#include <algorithm>

#include "jit/pv_passes.h"
#include "jit/weights_fours.h"

namespace quire::jit {
namespace {

// A turn, of four keys: for each 32 elements: v[0], v[1] = their codes, four keys a lane
//                       for r, digit: acc[r][w][digit] += v[w] * the four weights' digit
// then                  output[r][w] = output[r][w] * rescale[r] + (acc[0] + 256 acc[1] + 65536 acc[2]) *
// kUnit * factor
//
// 255 * 128 * kBlock keys, and as much before them: below 2^23.
//
// live: acc[R' * W * 3] + four of codes + a weight
class PvFours : public PvPasses {
public:
    explicit PvFours(const RowKey& key) : PvPasses(key), form_(key) { generate(); }

private:
    static constexpr int kBesides = 8;

    int sums() const override { return ValueFours::kDigits; }
    int rows_a_pass() const override {
        int rows = key_.rows;
        for (int parts = 2; widest(rows) < step(); ++parts) rows = (key_.rows + parts - 1) / parts;
        return rows;
    }
    int widest(int rows) const override {
        return std::min(kMostWidth, (num_vecs() - kBesides) / (sums() * rows) / step() * step());
    }
    int step() const override { return ValueFours::kVecs; }
    int turn_bytes() const override { return ValueFours::kFourBytes; }

    int group_of(int vec) const { return vec * lanes() / scale_group(key_.format); }
    const Vec& sum(const std::vector<Vec>& acc, const Pass& pass, int r, int w, int digit) const {
        return acc[size_t((r * pass.width + w) * sums() + digit)];
    }

    void emit_begin(const std::vector<Vec>& acc, const Pass& pass) override {
        mov(weights_, ptr[args() + offsetof(PvArgs, probabilities)]);
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; ++w)
                broadcast_each(&sum(acc, pass, r, w, 0), sums(),
                               weights_ + form_.start_at(group_of(pass.vec + w), pass.row + r));
    }

    void emit_turn(const std::vector<Vec>& acc, const Pass& pass) override {
        for (int w = 0; w < pass.width; w += step()) {
            const std::vector<Vec> v = vecs("codes", step());
            emit_values(v, 0, pass, [&] { emit_codes(v, byte_of(pass.vec + w)); });
            const int group = group_of(pass.vec + w);
            for (int r = 0; r < pass.rows; ++r)
                for (int digit = 0; digit < sums(); ++digit) {
                    Temp weight(*this, "weight");
                    broadcast(weight, ptr[weights_ + form_.weights_at(group, pass.row + r) + digit * 4]);
                    for (int i = 0; i < step(); ++i)
                        dot_bytes(sum(acc, pass, r, w + i, digit), v[size_t(i)], *weight);
                }
            free(v);
        }
    }

    // Unsigned ones of 32 elements of four rows, from byte `at` of each on. Codes of four bits: v[0] has the
    // lower nibbles, v[1] the upper ones.
    void emit_codes(const std::vector<Vec>& v, int at) {
        const auto row_at = [&](int key) { return rows_.in_turn(key, row_) + at; };
        if (is_of_nibbles(key_.format)) {
            load_nibbles_of_four(v[0], v[1], row_at, block() != nullptr);
            if (block() && block()->table) look_up_nibbles(v, block()->table, 128);
            if (block() && block()->high_bits_at)
                add_fifth_bits_of_four(v[0], v[1], row_at, block()->codes_at - block()->high_bits_at);
            return;
        }
        load_bytes_of_four(v[0], v[1], row_at);
        for (const Vec& codes : v) vpxord(codes, codes, splat_bits(0x80808080));
    }

    void emit_end(const std::vector<Vec>& acc, const Pass& pass) override {
        stage("end of the pass");
        for (int r = 0; r < pass.rows; ++r)
            for (int w = 0; w < pass.width; w += step()) {
                std::vector<Vec> numbers;
                for (int i = 0; i < step(); ++i) numbers.push_back(emit_number(acc, pass, r, w + i));
                put_in_order(numbers[0], numbers[1]);
                emit_output(numbers, pass.row + r, pass.vec + w);
            }
    }

    const Vec& emit_number(const std::vector<Vec>& acc, const Pass& pass, int r, int w) {
        const Vec& number = sum_of_digits(&sum(acc, pass, r, w, 0), ValueFours::kDigits);
        vmulps(number, number, splat(ValueFours::kUnit));
        Temp factor(*this, "factor");
        broadcast(factor, ptr[scales_ + form_.factor_at(group_of(pass.vec + w), pass.row + r)]);
        vmulps(number, number, factor);
        return number;
    }

    void emit_output(const std::vector<Vec>& numbers, int row, int vec) {
        Temp rescale(*this, "rescale");
        broadcast(rescale, ptr[rescale_ + row * 4]);
        for (int i = 0; i < step(); ++i) {
            vfmadd231ps(numbers[size_t(i)], rescale, ptr[output_at(row, vec + i)]);
            vmovups(ptr[output_at(row, vec + i)], numbers[size_t(i)]);
        }
    }

    const ValueFours form_;
};

}  // namespace

Status generate_pv_fours(const RowKey& key, std::vector<uint8_t>* code) { return PvFours(key).finish(code); }

}  // namespace quire::jit
