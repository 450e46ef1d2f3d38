#include "jit/weights_amx.h"

#include <algorithm>
#include <cstddef>

#include "jit/scaled_amx.h"
#include "jit/weights_digits_emitter.h"

namespace quire::jit {
namespace {

// scales: [keys][S] become [keys / L][S][L], as those of blocks of tokens are       transpose_scales
// for each up to 8 query rows:
//   products[g][r] of keys behind the last one, up to a whole block = 0             clear_rest
//   for each group g, and of few rows emit_digits of the group before, which wait for top:
//     products[g][r] = p[r] * scale[g], of L keys each, in the order of values      emit_tops
//     top[r] = max over keys of |products[g][r][key]|; NaN if one of them is
//     inverses[g][r] = largest / top[r], factors[g][r] = top[r]                     emit_factors
//     for each 64 keys, r: n = round(products[g][r] * inverses[g][r])               emit_digits
//       weights[step][g] = digits of n
class WeightsAmx : public WeightsOfDigits<ValueAmx> {
public:
    explicit WeightsAmx(const RowKey& key) : WeightsOfDigits(key) {
        begin();
        if (!of_tokens()) transpose_scales();
        if (of_tokens()) vmovups(order_ = vec("order of tokens"), constant(tokens_of_fours()));
        set_up();
        for (int part = 0; part < form_.parts(); ++part) {
            const Rows rows{form_.first_row(part), form_.rows_of(part)};
            clear_rest(part);
            const int behind = form_.kept_groups(part) - 1;
            for (int g = 0; g < form_.groups + behind; ++g) {
                if (g % groups_awake(rows) == 0) keep_tiles_awake();
                if (g < form_.groups) {
                    lea(products_, ptr[all_ + form_.products_at(part, g)]);
                    emit_factors(g, rows);
                }
                if (g >= behind) emit_digits(g - behind, part, rows);
            }
        }
        end();
    }

private:
    static constexpr int kFour = 4;  // vectors of a step
    static constexpr int kHalfOfThree = kHalfDigits << 8 | 0x80;
    int row_bytes() const { return kBlock * 4; }  // of products

    // Groups of so many rows that take some 1500 cycles.
    static int groups_awake(const Rows& rows) { return std::max(1, 40 / rows.count); }
    // The first product after 2000 cycles without one takes 1000 more (jit/amx.h), and softmax and weights of
    // more than a few rows take longer. One of whatever tiles hold costs 200.
    void keep_tiles_awake() {
        constexpr int kFewRows = 4;
        if (key_.rows > kFewRows) tdpbssd(Xbyak::Tmm(0), Xbyak::Tmm(1), Xbyak::Tmm(2));
    }

    bool keeps_products() const override { return true; }
    void keep_product(const Vec& product, const Vec& mask, int row) override {
        if (of_tokens()) vpermps(z(product), z(order_), z(product));
        vmovups(ptr[products_ + row * row_bytes()], product);
        vpandd(product, product, mask);
    }
    void next_products() override { add(products_, vec_bytes()); }

    void clear_rest(int part) {
        stage("products of no keys");
        Temp none(*this, "0");
        zero(none);
        const Gpr left = gpr("rows left");
        Label done, each_row, each;
        cmp(dword[args() + offsetof(WeightsArgs, count)], kBlock);
        je(done, T_NEAR);
        lea(products_, ptr[all_ + form_.products_at(part, 0)]);
        mov(left, std::min(form_.groups, form_.kept_groups(part)) * form_.rows_of(part));
        L(each_row);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        L(each);
        vmovups(ptr[products_ + count_ * 4], none);
        add(count_, lanes());
        cmp(count_, kBlock);
        jb(each, T_NEAR);
        add(products_, row_bytes());
        dec(left);
        jnz(each_row, T_NEAR);
        L(done);
        free(left);
    }

    void emit_digits(int g, int part, const Rows& rows) {
        stage("digits of group " + std::to_string(g));
        const std::vector<Vec> inverse = vecs("inverse", rows.count);
        load_inverses(inverse, g, rows);
        const bool three = form_.digits == 3;
        Temp half(*this, "half digits as a number"), signs(*this, "signs of digits"), order(*this, "order");
        vmovups(half, splat(three ? float(kHalfOfThree) : kOfWords + float(kHalfDigits)));
        vmovups(signs, splat_bits(0x80808080));
        vmovups(order, constant(three ? digits_of_four() : digits_of_two_fours()));
        if (!three) {
            mov(eax, 0x55555555);
            kmovd(k1, eax);
        }
        lea(products_, ptr[all_ + form_.products_at(part, g)]);
        lea(weights_, ptr[all_ + form_.weights_at(part, 0, g)]);
        mov(count_, ValueAmx::kSteps);
        Label each;
        L(each);
        for (int r = 0; r < rows.count; ++r) {
            const std::vector<Vec> n = vecs("n", kFour);
            for (int z = 0; z < kFour; ++z) {
                vmovups(n[size_t(z)], ptr[products_ + r * row_bytes() + z * vec_bytes()]);
                vfmadd213ps(n[size_t(z)], inverse[size_t(r)], half);  // a byte is its digit, and 128
            }
            const std::vector<Vec> digits = three ? three_digits(n, order) : two_digits(n, order);
            for (int digit = 0; digit < form_.digits; ++digit) {
                const Vec& of_digit = digits[size_t(digit)];
                vpxord(of_digit, of_digit, signs);
                vmovups(ptr[weights_ + (digit * rows.count + r) * ValueAmx::kRowBytes], of_digit);
            }
            free(n);
        }
        add(products_, ValueAmx::kStepKeys * 4);
        add(weights_, form_.step_bytes(part));
        dec(count_);
        jnz(each, T_NEAR);
        free(inverse);
    }

    // Lane 4 i + z of each: the digit of keys 16 z + 4 i and the three behind it.
    std::vector<Vec> three_digits(const std::vector<Vec>& n, const Vec& order) {
        static_assert(kHalfOfThree + int(ValueFours::kLargest) + 1 <= 1 << 24);  // whole numbers in a float
        for (const Vec& v : n) {
            vcvtps2dq(v, v);
            vpshufb(v, v, order);
        }
        Temp low(*this, "low"), upper(*this, "upper");
        vpunpckldq(low, n[0], n[1]);
        vpunpckhdq(n[0], n[0], n[1]);
        vpunpckldq(upper, n[2], n[3]);
        vpunpckhdq(n[2], n[2], n[3]);
        vpunpcklqdq(n[1], low, upper);
        vpunpckhqdq(n[3], low, upper);
        vpunpcklqdq(n[2], n[0], n[2]);
        return {n[1], n[3], n[2]};
    }

    static Xbyak::Zmm z(const Vec& v) { return Xbyak::Zmm(v.getIdx()); }

    const Gpr products_ = gpr("products");
    Vec order_;  // of blocks of tokens, of those that a dword has
};

}  // namespace

bool has_value_amx(const RowKey& values) {
    constexpr int kMostScales = 16, kRun = ValueAmx::kRun;
    const quire_type type = values.format.type;
    if (values.target->amx && token_block_info(type))
        return values.dim % kRun == 0 && values.groups() <= kMostScales;
    if (!values.target->amx || (type != QUIRE_INT8 && type != QUIRE_INT4)) return false;
    const int column = type == QUIRE_INT4 ? 8 : 4;  // elements of four bytes, which are of one group
    if (values.row_bytes() % kRun != 0 || scale_group(values.format) % column != 0) return false;
    return values.shared_lanes(values.groups()) <= kMostScales;
}

bool takes_value_amx(const RowKey& values) {
    return (values.tile_digits() > 0 && has_value_amx(values)) ||
           (values.scales_tiles() && has_scaled_amx(values.format, values.dim, *values.target));
}

Status generate_weights_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return WeightsAmx(key).finish(code);
}

}  // namespace quire::jit
