// The emitter's loads and stores: masks and tails, conversions.
#include <algorithm>
#include <cassert>
#include <functional>

#include "jit/emitter.h"
#include "src/half.h"

namespace quire::jit {
namespace {

constexpr int kUnordered = 3;  // predicate of vcmpps

}  // namespace

void Emitter::set_mask(const Xbyak::Opmask& k, int n) {
    mov(rax, n >= 64 ? ~uint64_t(0) : (uint64_t(1) << n) - 1);
    kmovq(k, rax);
}

void Emitter::load_f32(const Vec& v, const RegExp& at, int n) {
    if (n == lanes()) {
        vmovups(v, ptr[at]);
    } else if (is_512()) {
        set_mask(k1, n);
        vmovups(v | k1 | T_z, ptr[at]);
    } else {
        std::vector<uint32_t> mask(size_t(lanes()), 0);
        for (int i = 0; i < n; ++i) mask[size_t(i)] = ~0u;
        vmovups(v, constant(mask));
        vmaskmovps(v, v, ptr[at]);
    }
}

void Emitter::load_permuted(const Vec& v, const RegExp& at, const std::vector<uint32_t>& order) {
    const Xbyak::Ymm wide(v.getIdx(), is_512() ? Xbyak::Operand::ZMM : Xbyak::Operand::YMM,
                          target_.vector_bits);
    const auto held = held_.find(order);
    if (held != held_.end()) return vpermps(wide, Xbyak::Zmm(held->second.getIdx()), ptr[at]);
    vmovups(v, constant(order));
    vpermps(wide, wide, ptr[at]);
}

void Emitter::permute(const Vec& v, const std::vector<uint32_t>& order) {
    Temp index(*this, "order");
    vmovups(index, constant(order));
    is_512() ? vpermps(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm((*index).getIdx()), Xbyak::Zmm(v.getIdx()))
             : vpermps(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm((*index).getIdx()), Xbyak::Ymm(v.getIdx()));
}

void Emitter::load_half_lanes(const Vec& v, const RegExp& at, const std::vector<int>& index, int count) {
    load_words_in_order(v, at, index, count);
    vcvtph2ps(v, Xbyak::Ymm(v.getIdx()));
}

std::vector<int> Emitter::in_lists(int numbers, int each, int n) {
    std::vector<int> index;
    for (int i = 0; i < numbers; ++i) index.push_back(i / each * n + std::min(i % each, n - 1));
    return index;
}

void Emitter::load_half_lists(const Vec& v, const RegExp& at, int n, int each) {
    if (n == each) return load_number(QUIRE_F16, v, at, lanes());
    load_half_lanes(v, at, in_lists(lanes(), each, n), lanes() / each * n);
}

void Emitter::load_twice(const Vec& v, const RegExp& at, int n) {
    if (n == lanes() / 2) {
        vpmovzxdq(v, ptr[at]);
    } else {
        load_f32(v, at, n);
        vpmovzxdq(v, half_of(v));
    }
    vmovsldup(v, v);
}

void Emitter::load_repeated(const Vec& v, const RegExp& at, int run) {
    const int n = lanes() / run;
    if (n == 1) return broadcast(v, ptr[at]);
    const Xbyak::Ymm y(v.getIdx());
    const Xbyak::Zmm z(v.getIdx());
    if (n == 2) is_512() ? vpbroadcastq(z, ptr[at]) : vpbroadcastq(y, ptr[at]);
    if (n == 4) is_512() ? vbroadcastf32x4(z, ptr[at]) : vbroadcastf128(y, ptr[at]);
    if (n == 8) vmovups(y, ptr[at]);
    std::vector<uint32_t> order;
    for (int i = 0; i < lanes(); ++i) order.push_back(uint32_t(i / run));
    if (n <= 4) return vpermilps(v, v, constant(order));
    Temp index(*this, "index");
    vmovups(index, constant(order));
    vpermps(z, Xbyak::Zmm((*index).getIdx()), v);
}

void Emitter::load_every_second(const Vec& v, const RegExp& at) {
    if (is_512()) {
        std::vector<uint32_t> order;
        for (int i = 0; i < lanes(); ++i) order.push_back(uint32_t(2 * i));
        Temp low(*this, "low");
        vmovups(v, constant(order));
        vmovups(low, ptr[at]);
        // v = the floats of both that it numbers
        return vpermi2ps(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm((*low).getIdx()), ptr[at + vec_bytes()]);
    }
    const Xbyak::Ymm y(v.getIdx());
    vmovups(y, ptr[at]);
    vshufps(y, y, ptr[at + vec_bytes()], 0x88);
    vpermpd(y, y, 0xd8);
}

void Emitter::load_lanes(const Vec& v, const RegExp& at, const std::vector<int>& index) {
    const int low = index.front(), count = index.back() - low + 1;
    if (count == 1) return broadcast(v, ptr[at + low * 4]);
    std::vector<uint32_t> order;
    for (int i : index) order.push_back(uint32_t(i - low));
    const bool rises = std::adjacent_find(order.begin(), order.end(), std::greater_equal<>()) == order.end();
    if (rises && count == lanes()) return vmovups(v, ptr[at + low * 4]);  // each in its place
    if (is_halves(index) && holds_upper_half_)
        return broadcast_halves(v, at + low * 4, at + index.back() * 4, false);
    if (is_512() || count > 2) return load_permuted(v, at + low * 4, order);
    const Xbyak::Ymm y(v.getIdx());  // vpermps of memory takes two cycles on Zen 3, this one
    vpbroadcastq(y, ptr[at + low * 4]);
    vpermilps(y, y, constant(order));
}

bool Emitter::is_halves(const std::vector<int>& index) const {
    const auto middle = index.begin() + lanes() / 2;
    return is_512() && index.front() != index.back() &&
           std::count(index.begin(), middle, index.front()) == lanes() / 2 &&
           std::count(middle, index.end(), index.back()) == lanes() / 2;
}

bool Emitter::permutes(const std::vector<int>& index) const {
    return is_512() && index.front() != index.back() && !(is_halves(index) && holds_upper_half_);
}

void Emitter::hold_lanes(const std::vector<int>& index, int spare) {
    if (!permutes(index)) return;
    std::vector<uint32_t> order;
    for (int i : index) order.push_back(uint32_t(i - index.front()));
    hold(order, spare);
}

void Emitter::hold(const std::vector<uint32_t>& words, int spare) {
    if (free_vecs() <= spare || held_.count(words)) return;
    held_[words] = vec("held");
    vmovups(held_[words], constant(words));
}

void Emitter::hold_splats(const std::vector<float>& values, int spare) {
    for (const float value : values) hold(std::vector<uint32_t>(size_t(lanes()), float_bits(value)), spare);
}

void Emitter::load_splat(const Vec& v, float value) {
    const auto held = held_.find(std::vector<uint32_t>(size_t(lanes()), float_bits(value)));
    held != held_.end() ? vmovaps(v, held->second) : vmovups(v, splat(value));
}

void Emitter::multiply_add(const Vec& acc, const Vec& x, float value) {
    const auto held = held_.find(std::vector<uint32_t>(size_t(lanes()), float_bits(value)));
    held != held_.end() ? vfmadd213ps(acc, x, held->second) : vfmadd213ps(acc, x, splat(value));
}

void Emitter::drop_held() {
    for (const auto& held : held_) free(held.second);
    held_.clear();
}

void Emitter::load_lanes_of_eights(const Vec& v, const RegExp& at, int row_bytes, std::vector<int> index) {
    constexpr int kRow = 8;
    assert(*std::max_element(index.begin(), index.end()) < kRow);
    for (size_t i = 0; i < index.size(); ++i) index[i] += int(i % 4) * kRow;
    Temp order(*this, "of_eights.order"), last(*this, "last two rows");
    vmovups(order, constant(std::vector<uint32_t>(index.begin(), index.end())));
    const auto load_two = [&](const Vec& d, int row) {
        const RegExp first = at + row * row_bytes;
        if (row_bytes == kRow * 4) return vmovups(d, ptr[first]);
        vmovups(Xbyak::Ymm(d.getIdx()), ptr[first]);
        vinsertf64x4(Xbyak::Zmm(d.getIdx()), Xbyak::Zmm(d.getIdx()), ptr[first + row_bytes], 1);
    };
    load_two(v, 0);
    load_two(last, 2);
    vpermt2ps(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm((*order).getIdx()), Xbyak::Zmm((*last).getIdx()));
}

void Emitter::store_f32(const RegExp& at, const Vec& v, int n) {
    if (n == lanes()) {
        vmovups(ptr[at], v);
    } else if (is_512()) {
        set_mask(k1, n);
        vmovups(ptr[at] | k1, v);
    } else {
        // Four, two, one: no mask register needed. Changes v, which is spent by a store of a tail.
        const Xbyak::Xmm x(v.getIdx());
        int done = 0;
        if (n & 4) {
            vmovups(ptr[at], x);
            vextractf128(x, Xbyak::Ymm(v.getIdx()), 1);
            done = 4;
        }
        if (n & 2) {
            vmovlps(ptr[at + done * 4], x);
            vpermilpd(x, x, 1);
            done += 2;
        }
        if (n & 1) vmovss(ptr[at + done * 4], x);
    }
}

void Emitter::load_bytes(const Vec& v, const RegExp& at, int n) {
    const Xbyak::Xmm x(v.getIdx());
    const Xbyak::Ymm y(v.getIdx());
    if (n == 8) return vmovq(x, ptr[at]);
    if (is_512()) {  // vmovdqu8: vmovdqu has no form for the upper 16 registers
        if (n == 32) return vmovdqu8(y, ptr[at]);
        if (n == 16) return vmovdqu8(x, ptr[at]);
        set_mask(k1, n);
        return vmovdqu8(y | k1 | T_z, ptr[at]);
    }
    if (n == 16) return vmovdqu(x, ptr[at]);
    // At most 15 bytes here (f16 tails of a ymm): eight, four, two, one, from the end so that each part lands
    // in place.
    int done = 0;
    if (n & 8) {
        vmovq(x, ptr[at]);
        done = 8;
    } else {
        vpxor(x, x, x);
    }
    if (n & 4) {
        vpinsrd(x, x, ptr[at + done], uint8_t(done / 4));
        done += 4;
    }
    if (n & 2) {
        vpinsrw(x, x, ptr[at + done], uint8_t(done / 2));
        done += 2;
    }
    if (n & 1) vpinsrb(x, x, ptr[at + done], uint8_t(done));
}

void Emitter::store_bytes(const RegExp& at, const Vec& v, int n) {
    const Xbyak::Xmm x(v.getIdx());
    if (n == 16) return is_512() ? vmovdqu8(ptr[at], x) : vmovdqu(ptr[at], x);
    int done = 0;
    if (n & 8) {
        vmovq(ptr[at], x);
        vpsrldq(x, x, 8);
        done = 8;
    }
    if (n & 4) {
        vmovd(ptr[at + done], x);
        vpsrldq(x, x, 4);
        done += 4;
    }
    if (n & 2) {
        vpextrw(ptr[at + done], x, 0);
        vpsrldq(x, x, 2);
        done += 2;
    }
    if (n & 1) vpextrb(ptr[at + done], x, 0);
}

Xbyak::Xmm Emitter::half_of(const Vec& v) const {
    return is_512() ? Xbyak::Xmm(Xbyak::Operand::YMM, v.getIdx()) : Xbyak::Xmm(v.getIdx());
}

void Emitter::load_number(quire_type type, const Vec& v, const RegExp& at, int n) {
    if (type == QUIRE_F32) return load_f32(v, at, n);
    const bool whole = n == lanes();
    if (!whole) load_bytes(v, at, n * 2);
    if (type == QUIRE_F16) {
        whole ? vcvtph2ps(v, ptr[at]) : halves_to_floats(v);
    } else {
        whole ? vpmovzxwd(v, ptr[at]) : vpmovzxwd(v, half_of(v));
        vpslld(v, v, 16);
    }
}

// f32 bits -> bf16 in the upper halves of the lanes, ties to even, NaN kept (quiet).
void Emitter::round_bits_to_bf16(const Vec& v) {
    Temp rounded(*this, "bf16.rounded");
    vpsrld(rounded, v, 16);
    bit_and(rounded, rounded, splat_bits(1));
    vpaddd(rounded, rounded, splat_bits(0x7fff));
    vpaddd(rounded, rounded, v);
    if (is_512()) {
        vcmpps(k2, v, v, kUnordered);
        vpord(v, v, splat_bits(0x00400000));
        vmovaps(*rounded | k2, v);
        vmovaps(v, rounded);
    } else {
        Temp nan(*this, "bf16.nan");
        vcmpps(nan, v, v, kUnordered);
        vorps(v, v, splat_bits(0x00400000));
        vblendvps(v, rounded, v, nan);
    }
}

void Emitter::store_number(quire_type type, const RegExp& at, const Vec& v, int n) {
    if (type == QUIRE_F32) return store_f32(at, v, n);
    const Xbyak::Xmm half = half_of(v);
    if (type == QUIRE_F16) {
        if (n == lanes()) return vcvtps2ph(ptr[at], v, 0);
        vcvtps2ph(half, v, 0);
    } else {
        round_bits_to_bf16(v);
        vpsrld(v, v, 16);
        if (is_512()) {
            vpmovdw(half, v);
        } else {
            vpackusdw(v, v, v);
            vpermq(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), 0x08);
        }
    }
    if (n * 2 > 16) {  // only zmm has that many
        set_mask(k1, n);
        vmovdqu16(ptr[at] | k1, half);
    } else {
        store_bytes(at, v, n * 2);
    }
}

void Emitter::load_i8(const Vec& v, const RegExp& at, int n) {
    if (n == lanes()) return vpmovsxbd(v, ptr[at]);
    load_bytes(v, at, n);
    vpmovsxbd(v, Xbyak::Xmm(v.getIdx()));
}

void Emitter::gather_halves(const Xbyak::Xmm& x, const RegExp* at, int count, int each) {
    for (int i = 0; i < count; ++i) {
        const Address numbers = ptr[at[i]];
        each == 1   ? vpinsrw(x, x, numbers, uint8_t(i))
        : each == 2 ? vpinsrd(x, x, numbers, uint8_t(i))
                    : vpinsrq(x, x, numbers, uint8_t(i));
    }
}

void Emitter::load_halves(const Vec& v, const std::vector<RegExp>& at, int each) {
    gather_all_halves(v, at, each);
    halves_to_floats(v);
}

void Emitter::gather_all_halves(const Vec& v, const std::vector<RegExp>& at, int each) {
    const int count = int(at.size()), most = 8 / each;  // in 128 bits
    zero(v);
    gather_halves(Xbyak::Xmm(v.getIdx()), at.data(), std::min(count, most), each);
    if (count <= most) return;
    Temp upper(*this, "upper halves");
    const Xbyak::Xmm high((*upper).getIdx());
    zero(upper);
    gather_halves(high, at.data() + most, count - most, each);
    vinserti32x4(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), high, 1);
}

void Emitter::load_fours(quire_type type, const Vec& v, const std::vector<RegExp>& at) {
    if (type == QUIRE_F16) return load_halves(v, at, 4);
    if (type == QUIRE_BF16) {
        gather_all_halves(v, at, 4);
        vpmovzxwd(v, half_of(v));
        vpslld(v, v, 16);
        return;
    }
    vmovups(Xbyak::Xmm(v.getIdx()), ptr[at[0]]);
    for (size_t i = 1; i < at.size(); ++i)
        is_512() ? vinsertf32x4(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(v.getIdx()), ptr[at[i]], uint8_t(i))
                 : vinsertf128(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), ptr[at[i]], uint8_t(i));
}

void Emitter::store_i8(const RegExp& at, const Vec& v, int n) {
    if (is_512()) {
        vpmovdb(Xbyak::Xmm(v.getIdx()), v);
    } else {
        const Xbyak::Xmm low(v.getIdx());
        Temp upper(*this, "i8.upper");
        const Xbyak::Xmm high((*upper).getIdx());
        vextracti128(high, Xbyak::Ymm(v.getIdx()), 1);
        vpackssdw(low, low, high);
        vpacksswb(low, low, low);
    }
    store_bytes(at, v, n);
}

}  // namespace quire::jit
