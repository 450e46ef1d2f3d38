#include "jit/scaled_amx.h"

namespace quire::jit {

bool has_scaled_amx(const quire_format& format, int dim, const Target& target) {
    if (!target.amx || (format.type != QUIRE_INT8 && format.type != QUIRE_INT4)) return false;
    const int parts = format.type == QUIRE_INT4 ? 2 : 1, group = format.quant_group / parts;
    constexpr int kRow = ScaledAmx::kTileRow, kLeast = 4;
    return dim % (16 * parts) == 0 && group >= kLeast && (group % kRow == 0 || kRow % group == 0);
}

int ScaledValueAmx::weight_stride(const RowKey& key, int rows) {
    const ScaledValueAmx form(key);
    return std::max(form.weights_bytes() / (rows * weight_row_bytes(2, false)) + 1, form.factor_stride());
}

void ScaledDigits::set() const {
    e_.vmovups(upper_, e_.splat_bits(0xff00ff00));
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < 16; ++i) order.push_back(0x02030001 + 0x04040404 * (i % 4));
    e_.vmovups(swap_, e_.constant(order));
}

void ScaledDigits::part(const Vec& even, const Vec& odd, const Vec& codes) const {
    e_.vpsllw(even, codes, 8);
    e_.vpandd(odd, codes, upper_);
}

void ScaledDigits::scale(const Vec& high, const Vec& even, const Vec& odd, const Vec& even_share,
                         const Vec& odd_share) const {
    constexpr int kFirstWhereThird = 0xe4;
    e_.vpmulhrsw(even, even, even_share);
    e_.vpmulhrsw(odd, odd, odd_share);
    e_.vpshufb(odd, odd, swap_);
    e_.vpshrdw(high, even, odd, 8);
    e_.vpternlogd(odd, even, upper_, kFirstWhereThird);
}

Shares::Shares(Emitter& e, const RowKey& key, bool of_fours, float unit)
    : e_(e),
      form_(key),
      of_fours_(of_fours),
      scales_of_f32_(key.format.scale_type == QUIRE_F32),
      unit_(unit),
      mask_(e.vec("magnitude")) {
    if (!of_fours) {
        order_ = e.vec("words twice");
        return;
    }
    most_ = e.vec("largest number");
    poison_ = e.vecs("poison", form_.is_small() ? 1 : form_.share_stride() / 16);
}

void Shares::begin() {
    uint32_t of_scales = 0;  // lanes
    for (int lane = 0; lane < 16; ++lane) {
        const int first = form_.is_small() ? 0 : form_.share_stride() - 16,
                  each = form_.is_small() ? form_.stride : 16;
        if (first + lane % each < form_.groups) of_scales |= 1u << lane;
    }
    e_.mov(e_.eax, of_scales);
    e_.kmovw(last_, e_.eax);
    e_.vmovups(mask_, e_.splat_bits(0x7fffffff));
    if (!of_fours_) {
        std::vector<uint32_t> order;
        for (uint32_t lane = 0; lane < 16; ++lane) order.push_back(0x01000100 + 0x04040404 * (lane % 4));
        return e_.vmovups(order_, e_.constant(order));
    }
    e_.mov(e_.eax, 0x55555555);
    e_.kmovd(lower_, e_.eax);
    e_.vmovups(most_, e_.splat_bits(0x7f7fffff));
    for (const Vec& v : poison_) e_.zero(v);
}

void Shares::finish() {
    e_.free(mask_);
    if (!of_fours_) return e_.free(order_);
    e_.free(most_);
    e_.free(poison_);
}

void Shares::load(const Vec& v, const RegExp& scales, int vector) {
    const bool last = form_.is_small() || (vector + 1) * 16 == form_.share_stride();
    last ? e_.vmovups(v | last_ | Xbyak::util::T_z, e_.ptr[scales]) : e_.vmovups(v, e_.ptr[scales]);
}

void Shares::to_magnitudes(const Vec& v, int vector) {
    if (of_fours_) {
        Temp none(e_, "NaN or 0");
        const Vec& poison = poison_[form_.is_small() ? 0 : size_t(vector)];
        e_.vsubps(none, v, v);
        e_.vaddps(poison, poison, none);
    }
    e_.vpandd(v, v, mask_);
    if (!of_fours_) return;
    constexpr int kAtMost = 2;
    e_.vpcmpud(Xbyak::Opmask(1), v, most_, kAtMost);
    e_.vmovups(v | Xbyak::Opmask(1) | Xbyak::util::T_z, v);
}

// inverse = what makes shares of scales whose largest magnitude is top, which becomes what numbers of the row
// are relative to: scales are divided by the power of two of their largest, so that shares of float16 ones
// are exact, if not 16 times smaller than it.
void Shares::emit_inverse(const Vec& top, const Vec& inverse) {
    constexpr uint32_t kOne = 0x3f800000, kInfinity = 0x7f800000, k2To14 = 0x46800000, kLeast = 0x0d800000;
    Temp none(e_, "NaN or 0");
    e_.vpmaxud(top, top, e_.splat_bits(kLeast));  // 2^-100
    e_.vsubps(none, top, top);
    e_.vpandd(top, top, e_.splat_bits(kInfinity));
    e_.vmovups(inverse, e_.splat_bits(k2To14 + kOne));
    e_.vpsubd(inverse, inverse, top);
    e_.vfmadd132ps(top, none, e_.splat(unit_ / 128));
}

// Halves are rounded up, so numbers of a row are, by a part of one, too large: in sums of values over many
// rows that would be all that is left of errors. Of rows that are -1 times their values they are too small.
void Shares::turn_odd_rows(const Vec& top, const Vec& inverse, int first, int lanes_of_row) {
    if (!of_fours_) return;
    std::vector<uint32_t> signs(16);
    for (int lane = 0; lane < 16; ++lane)
        if ((first + lane / lanes_of_row) % 2 == 1) signs[size_t(lane)] = 0x80000000;
    if (std::count(signs.begin(), signs.end(), 0u) == 16) return;
    e_.vpxord(top, top, e_.constant(signs));
    e_.vpxord(inverse, inverse, e_.constant(signs));
}

void Shares::make(const Vec& share, const Vec& inverse) {
    e_.vmulps(share, share, inverse);
    if (scales_of_f32_) {  // may be rounded up
        e_.vminps(share, share, e_.splat(kLargestWord));
        e_.vmaxps(share, share, e_.splat(-kLargestWord));
    }
    e_.vcvtps2dq(share, share);
}

void Shares::store_twice(const Vec& share, const RegExp& to) {
    e_.vpshufb(share, share, order_);
    e_.vmovups(e_.ptr[to], share);
}

void Shares::join(const Vec& of_second, const Vec& of_first) {
    e_.vpslld(of_second, of_second, 16);
    e_.vmovdqu16(of_second | lower_, of_first);
}

void Shares::emit(const RegExp& scales, const RegExp& shares, const RegExp& tops) {
    e_.stage("shares");
    form_.is_small() ? emit_small(scales, shares, tops) : emit_large(scales, shares, tops);
}

// Several rows a vector, or one.
void Shares::emit_small(const RegExp& scales, const RegExp& shares, const RegExp& tops) {
    const int each = form_.stride, rows = 16 / each;
    std::vector<Vec> of_four;  // shares of one, two or four vectors
    for (int i = 0; i < each; ++i) {
        const Vec share = e_.vec("shares");
        Temp top(e_, "top"), other(e_, "other");
        load(share, scales + i * 64, 0);
        e_.vmovaps(top, share);
        to_magnitudes(top, 0);
        for (int distance = 1; distance < each; distance *= 2) {
            e_.swap_lanes(other, top, distance);
            e_.vpmaxud(top, top, other);
        }
        emit_inverse(top, other);
        turn_odd_rows(top, other, i * rows, each);
        make(share, other);
        std::vector<uint32_t> firsts(16);
        for (int lane = 0; lane < 16; ++lane) firsts[size_t(lane)] = uint32_t(lane % rows * each);
        if (each < 16) e_.permute(top, firsts);
        e_.store_f32(tops + i * rows * 4, top, rows);
        if (!of_fours_) {
            store_twice(share, shares + i * 64);
            e_.free(share);
            continue;
        }
        of_four.push_back(share);
        if (int(of_four.size()) * rows < 4) continue;
        const RegExp to = shares + (i + 1 - int(of_four.size())) * rows / 4 * 2 * each * 4;
        switch (of_four.size()) {
            case 4:
                join(of_four[2], of_four[0]);
                join(of_four[3], of_four[1]);
                e_.vmovups(e_.ptr[to], of_four[2]);
                e_.vmovups(e_.ptr[to + 64], of_four[3]);
                break;
            case 2:
                join(of_four[1], of_four[0]);
                e_.vmovups(e_.ptr[to], of_four[1]);
                break;
            default:  // rows 2 and 3 beside 0 and 1
                e_.swap_lanes(other, of_four[0], 2 * each);
                join(other, of_four[0]);
                if (each == 4) {
                    e_.vmovups(e_.ptr[to], Xbyak::Ymm((*other).getIdx()));
                    break;
                }
                e_.vmovups(e_.ptr[to], Xbyak::Xmm((*other).getIdx()));
                e_.vextracti32x4(e_.ptr[to + 16], Xbyak::Zmm((*other).getIdx()), 2);
        }
        e_.free(of_four);
        of_four.clear();
    }
}

// Several vectors a row: four rows at a time.
void Shares::emit_large(const RegExp& scales, const RegExp& shares, const RegExp& tops) {
    const int vectors = form_.share_stride() / 16, row_bytes = form_.stride * 4,
              share_bytes = form_.share_stride() * 4;
    for (int first = 0; first < 16; first += 4) {
        const RegExp from = scales + first * row_bytes;
        const std::vector<Vec> v = e_.vecs("inverses", 4);
        {
            Temp other(e_, "other");
            for (int row = 0; row < 4; ++row)
                for (int i = 0; i < vectors; ++i) {
                    const Vec& to = i == 0 ? v[size_t(row)] : *other;
                    load(to, from + row * row_bytes + i * 64, i);
                    to_magnitudes(to, i);
                    if (i > 0) e_.vpmaxud(v[size_t(row)], v[size_t(row)], other);
                }
        }
        e_.fold_quarters(v.data(), [&](const Xbyak::Xmm& to, const Xbyak::Xmm& x) { e_.vpmaxud(to, to, x); });
        {
            Temp other(e_, "other");
            for (int distance = 4; distance < 16; distance *= 2) {
                e_.swap_lanes(other, v[0], distance);
                e_.vpmaxud(v[0], v[0], other);
            }
            emit_inverse(v[0], other);
            turn_odd_rows(v[0], other, 0, 1);
            e_.vmovups(e_.ptr[tops + first * 4], Xbyak::Xmm(v[0].getIdx()));
            for (int row = 0; row < 4; ++row) e_.vpermilps(v[size_t(row)], other, uint8_t(row * 0x55));
        }
        Temp a(e_, "shares"), b(e_, "shares of another");
        const auto of_row = [&](const Vec& share, int row, int i) {
            load(share, from + row * row_bytes + i * 64, i);
            make(share, v[size_t(row)]);
        };
        for (int i = 0; i < vectors; ++i)
            for (int row = 0; row < 4; ++row) {
                if (!of_fours_) {
                    of_row(a, row, i);
                    store_twice(a, shares + (first + row) * share_bytes + i * 64);
                    continue;
                }
                if (row > 1) continue;
                of_row(a, row, i);
                of_row(b, row + 2, i);
                join(b, a);
                e_.vmovups(e_.ptr[shares + first / 4 * 2 * share_bytes + row * share_bytes + i * 64], b);
            }
        e_.free(v);
    }
}

void Shares::store_poison(const RegExp& to) {
    Temp other(e_, "other");
    for (int distance = form_.stride; form_.is_small() && distance < 16; distance *= 2) {
        e_.swap_lanes(other, poison_[0], distance);
        e_.vaddps(poison_[0], poison_[0], other);
    }
    for (size_t i = 0; i < poison_.size(); ++i) e_.vmovups(e_.ptr[to + i * 64], poison_[i]);
}

}  // namespace quire::jit
