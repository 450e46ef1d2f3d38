#include "jit/weights_fours.h"

#include <algorithm>
#include <cstddef>

#include "jit/byte_loader.h"
#include "jit/weights_digits_emitter.h"

namespace quire::jit {
namespace {

// scales: [keys][S] become [keys / L][S][L], as those of blocks of tokens are     transpose_scales
// for each up to 8 query rows, for each group g:
//   top[r] = max over keys of |p[r][key] * scale[g][key]|; NaN if one of them is  emit_tops
//   inverses[g][r] = kLargest / top[r], factors[g][r] = top[r]                    emit_factors
// for each of the same, for each group g:
//   for each L keys, for r:                                                       emit_digits
//     n = round(p * scale * inverses[g][r]); total[r] += n, both as n + kHalfDigits
//     weights[g][r] = digits of n, of four keys each
//   starts[g][r] = what the codes' offset times total[r] is, with another sign    emit_starts
class WeightsFours : public WeightsOfDigits<ValueFours> {
public:
    explicit WeightsFours(const RowKey& key) : WeightsOfDigits(key) {
        begin();
        if (!of_tokens()) transpose_scales();
        set_up();
        for (int row = 0; row < key_.rows; row += kRows) {
            const Rows part{row, std::min(kRows, key_.rows - row)};
            for (int g = 0; g < form_.groups; ++g) emit_factors(g, part);
            for (int g = 0; g < form_.groups; ++g) emit_digits(g, part);
        }
        end();
    }

private:
    static constexpr int kRows = 8;  // that there are registers for
    static constexpr int kHalfDigits = 0x808080;

    void emit_digits(int g, const Rows& rows) {
        stage("digits of group " + std::to_string(g));
        const std::vector<Vec> total = vecs("total", rows.padded()), inverse = vecs("inverse", rows.count);
        load_inverses(inverse, g, rows);
        Temp scale(*this, "scale"), number(*this, "number"), half(*this, "half digits"),
            number_of_half(*this, "the same as a number"), order(*this, "order"),
            tokens(*this, "order of tokens");
        vmovups(half, splat_bits(kHalfDigits));
        vmovups(number_of_half, splat(float(kHalfDigits)));
        vmovups(order, constant(digits_of_four()));
        if (of_tokens()) vmovups(tokens, constant(tokens_of_fours()));
        begin_totals(total);
        mov(weights_, ptr[args() + offsetof(WeightsArgs, weights)]);
        for_each_keys([&] {
            vmovups(scale, ptr[scales_ + g * vec_bytes()]);
            for (int r = 0; r < rows.count; ++r) {
                load_product(number, scale, rows.first + r);
                vfmadd213ps(number, inverse[size_t(r)], number_of_half);  // a byte is its digit, and 128
                vcvtps2dq(number, number);
                vpaddd(total[size_t(r)], total[size_t(r)], number);
                vpxord(number, number, half);
                if (of_tokens()) vpermd(z(number), z(tokens), z(number));
                vpshufb(number, number, order);
                vmovups(ptr[weights_ + form_.weights_at(g, rows.first + r)], *number);
            }
            add(weights_, vec_bytes());
        });
        free(inverse);
        emit_starts(total, g, rows);
        free(total);
    }
    static Xbyak::Zmm z(const Vec& v) { return Xbyak::Zmm(v.getIdx()); }

    // What the numbers of all keys are too large by, with another sign.
    void begin_totals(const std::vector<Vec>& totals) {
        static_assert(kHalfDigits + int(ValueFours::kLargest) + 1 <= 1 << 24);  // whole numbers in a float
        mov(rax, ptr[args() + offsetof(WeightsArgs, count)]);
        imul(eax, eax, -kHalfDigits / lanes());
        for (const Vec& v : totals) vpbroadcastd(v, eax);
    }

    // The total's parts of 8 bits, the last one of what is above, stand for their digits' totals: the sum is
    // the same.
    void emit_starts(const std::vector<Vec>& total, int g, const Rows& rows) {
        Temp none(*this, "0");
        zero(none);
        const uint8_t offset_bits = byte_zero_bits(row_format(key_.format));
        for (int first = 0; first < rows.padded(); first += 4) {
            const Vec &v = total[size_t(first)], &order = total[size_t(first) + 1];
            fold_four(&v, [&](const Vec& to, const Vec& from) { vpaddd(to, to, from); });
            vmovups(order, constant({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));
            vpermd(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(order.getIdx()), Xbyak::Zmm(v.getIdx()));
            vpsravd(v, v, four_constants({0, 8, 16, 31}));
            vpandd(v, v, four_constants({0xff, 0xff, 0xffffffff, 0}));
            vpslld(v, v, offset_bits);
            vpsubd(v, none, v);
            vmovups(ptr[all_ + form_.start_at(g, rows.first + first)], v);
        }
    }
    Address four_constants(const std::vector<uint32_t>& four) {
        std::vector<uint32_t> words;
        for (int i = 0; i < lanes(); ++i) words.push_back(four[size_t(i % 4)]);
        return constant(words);
    }
};

}  // namespace

bool has_value_fours(const RowKey& values) {
    const int elements = ValueFours::kVecs * values.target->lanes(), group = scale_group(values.format);
    if (token_block_info(values.format.type))
        return values.target->vnni && values.target->vector_bits == 512 && group % elements == 0;
    return values.target->vbmi && has_bytes(values.format) && values.dim % elements == 0 &&
           group % elements == 0 && values.shared_lanes(values.groups()) <= values.target->lanes() / 2;
}

Status generate_weights_fours(const RowKey& key, std::vector<uint8_t>* code) {
    return WeightsFours(key).finish(code);
}

}  // namespace quire::jit
