// Weights of many query rows beside values with their scales.
#include <cstddef>

#include "jit/scaled_amx.h"
#include "jit/weights_digits_emitter.h"

namespace quire::jit {
namespace {

// for each 16 keys: shares of their scales, and tops                                      emit_shares
// for each four query rows:
//   products[r] = p[r] * top of the key, behind the last one 0; top = the largest         emit_products
//   factors[g][r] = what makes numbers of sums, NaN where a scale of the group is          emit_factors
//   for each 64 keys: digits of round(products * inverse)                                  emit_digits
class WeightsScaledAmx : public WeightsOfDigits<ScaledValueAmx> {
public:
    explicit WeightsScaledAmx(const RowKey& key) : WeightsOfDigits(key) {
        begin();
        set_up();
        clear_rest();
        emit_shares();
        // The first product after 2000 cycles without one takes 1000 more (jit/weights_amx.cc).
        tdpbssd(Xbyak::Tmm(0), Xbyak::Tmm(1), Xbyak::Tmm(2));
        for (int first = 0; first < form_.rows; first += kFour) {
            const int count = std::min(kFour, form_.rows - first);
            emit_products(first, count);
            emit_digits(first, count);
        }
        end();
    }

private:
    static constexpr int kFour = 4;
    static constexpr float kLargest = 127 << 8 | 89;
    RegExp product_at(int row) const { return all_ + form_.products_at() + row * kBlock * 4; }

    // Of keys behind the last one.
    void clear_rest() {
        stage("products of no keys");
        Temp none(*this, "0");
        zero(none);
        Label done, each;
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        cmp(count_, kBlock);
        je(done, T_NEAR);
        L(each);
        for (int row = 0; row < kFour; ++row) vmovups(ptr[product_at(row) + count_ * 4], *none);
        add(count_, lanes());
        cmp(count_, kBlock);
        jb(each, T_NEAR);
        L(done);
    }

    void emit_shares() {
        const Gpr shares = gpr("shares"), tops = gpr("tops");
        Shares of_scales(*this, key_, true, 1 / kLargest / (form_.parts == 2 ? 16 : 1));
        of_scales.begin();
        mov(scales_, ptr[args() + offsetof(WeightsArgs, scales)]);
        mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
        lea(shares, ptr[all_ + form_.shares_at()]);
        lea(tops, ptr[all_ + form_.tops_at()]);
        Label each;
        L(each);
        of_scales.emit(scales_, shares, tops);
        add(scales_, kKeyPadding * key_.scales_stride() * 4);
        add(shares, kKeyPadding / 4 * form_.four_bytes());
        add(tops, kKeyPadding * 4);
        sub(count_, kKeyPadding);
        jnz(each, T_NEAR);
        of_scales.store_poison(all_ + form_.poison_at());
        of_scales.finish();
        free(shares);
        free(tops);
    }

    void emit_products(int first, int count) {
        stage("products of rows from " + std::to_string(first));
        const std::vector<Vec> top = vecs("top", kFour);
        for (const Vec& v : top) vmovups(v, splat(kLeastTop));
        {
            Temp of_keys(*this, "tops of keys"), product(*this, "product"), mask(*this, "mask");
            vmovups(mask, splat_bits(0x7fffffff));
            lea(weights_, ptr[all_ + form_.tops_at()]);
            mov(probabilities_, ptr[args() + offsetof(WeightsArgs, probabilities)]);
            mov(count_, ptr[args() + offsetof(WeightsArgs, count)]);
            Label each;
            L(each);
            vmovups(of_keys, ptr[weights_]);
            for (int r = 0; r < count; ++r) {
                vmulps(product, of_keys, ptr[row_at(first + r)]);
                vmovups(ptr[weights_ + (form_.products_at() - form_.tops_at()) + r * kBlock * 4], *product);
                vpandd(product, product, mask);
                vpmaxud(top[size_t(r)], top[size_t(r)], product);
            }
            add(weights_, vec_bytes());
            add(probabilities_, vec_bytes());
            sub(count_, lanes());
            jnz(each, T_NEAR);
        }
        fold_four(top.data(), [&](const Vec& to, const Vec& from) { vpmaxud(to, to, from); });
        emit_factors(Xbyak::Xmm(top[0].getIdx()), first, count);
        free(top);
    }

    void emit_factors(const Xbyak::Xmm& top, int first, int count) {
        stage("factors");
        Temp f(*this, "factor");
        const Xbyak::Xmm factor((*f).getIdx());
        vmovups(f, splat(kLargest));
        vdivps(factor, factor, top);
        vmovups(ptr[all_ + form_.inverses_at()], factor);
        vmovups(ptr[all_ + form_.inverses_at() + 16], top);
        for (int r = 0; r < count; ++r) {
            vpbroadcastd(f, ptr[all_ + form_.inverses_at() + 16 + r * 4]);
            for (int group = 0; group < form_.factor_stride(); group += lanes()) {
                Temp of_groups(*this, "factors of groups");
                vaddps(of_groups, f, ptr[all_ + form_.poison_at() + group * 4]);
                vmovups(ptr[factors_ + ((first + r) * form_.factor_stride() + group) * 4], *of_groups);
            }
        }
    }

    void emit_digits(int first, int count) {
        stage("digits");
        const std::vector<Vec> inverse = vecs("inverse", count);
        for (int r = 0; r < count; ++r)
            vpbroadcastd(inverse[size_t(r)], ptr[all_ + form_.inverses_at() + r * 4]);
        Temp half(*this, "half digits as a number"), signs(*this, "signs of digits"), order(*this, "order");
        vmovups(half, splat(kOfWords + float(kHalfDigits)));
        vmovups(signs, splat_bits(0x80808080));
        vmovups(order, constant(digits_of_two_fours()));
        mov(eax, 0x55555555);
        kmovd(k1, eax);
        for (int step = 0; step < ScaledValueAmx::kSteps; ++step)
            for (int r = 0; r < count; ++r) {
                const std::vector<Vec> n = vecs("n", 4);
                for (int i = 0; i < 4; ++i) {
                    vmovups(n[size_t(i)], ptr[product_at(r) + (step * 4 + i) * vec_bytes()]);
                    vfmadd213ps(n[size_t(i)], inverse[size_t(r)], half);
                }
                const std::vector<Vec> digits = two_digits(n, order);
                for (int digit = 0; digit < ScaledAmx::kDigits; ++digit) {
                    const Vec& of_digit = digits[size_t(digit)];
                    vpxord(of_digit, of_digit, signs);
                    const int at =
                        ScaledValueAmx::weights_at(step, digit) + (first + r) * ScaledAmx::kTileRow;
                    vmovups(ptr[all_ + at], of_digit);
                }
                free(n);
            }
        free(inverse);
    }
};

}  // namespace

Status generate_weights_scaled_amx(const RowKey& key, std::vector<uint8_t>* code) {
    return WeightsScaledAmx(key).finish(code);
}

}  // namespace quire::jit
