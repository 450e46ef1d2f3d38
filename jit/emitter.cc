#include "jit/emitter.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "jit/notes.h"
#include "src/half.h"

namespace quire::jit {
namespace {

// Larger than any kernel (D 1024, 8 rows: about 100 KB). Untouched pages cost nothing.
constexpr size_t kCapacity = 1 << 20;

// Caller-saved first; rax is scratch, rdi is args().
const int kGprOrder[] = {6, 2, 1, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15};
const int kCalleeSaved[] = {3, 5, 12, 13, 14, 15};

// Predicates of vcmpps.
constexpr int kEqual = 0, kLess = 1, kUnordered = 3, kOrdered = 7;

}  // namespace

Emitter::Emitter(const Target& target)
    // DontSetProtectRWE: the private buffer never becomes executable.
    : CodeGenerator(kCapacity, Xbyak::DontSetProtectRWE), target_(target) {
    vec_names_.resize(size_t(target.num_vecs()));
    gpr_names_.resize(16);
    setDefaultJmpNEAR(true);
}

Vec Emitter::of_kind(int index) const {
    return Vec(is_512() ? Xbyak::Operand::ZMM : Xbyak::Operand::YMM, index);
}

Vec Emitter::vec(const std::string& name) {
    for (size_t i = 0; i < vec_names_.size(); ++i) {
        if (!vec_names_[i].empty()) continue;
        vec_names_[i] = name;
        CollectNotes::add(getSize(), Note::vector_register, int(i), name);
        return of_kind(int(i));
    }
    std::string live;
    for (const std::string& other : vec_names_) live += " " + other;
    throw std::runtime_error("no vector register for " + name + "; live:" + live);
}

std::vector<Vec> Emitter::vecs(const std::string& name, int count) {
    std::vector<Vec> list;
    for (int i = 0; i < count; ++i) list.push_back(vec(name + std::to_string(i)));
    return list;
}

Gpr Emitter::gpr(const std::string& name) {
    for (int index : kGprOrder) {
        if (!gpr_names_[size_t(index)].empty()) continue;
        gpr_names_[size_t(index)] = name;
        CollectNotes::add(getSize(), Note::general_register, index, name);
        return Gpr(index);
    }
    throw std::runtime_error("no general register for " + name);
}

void Emitter::free(const Vec& v) {
    vec_names_[size_t(v.getIdx())].clear();
    CollectNotes::add(getSize(), Note::vector_register, v.getIdx(), "");
}
void Emitter::free(const std::vector<Vec>& list) {
    for (const Vec& v : list) free(v);
}
void Emitter::free(const Gpr& r) {
    gpr_names_[size_t(r.getIdx())].clear();
    CollectNotes::add(getSize(), Note::general_register, r.getIdx(), "");
}

void Emitter::stage(const std::string& text) { CollectNotes::add(getSize(), Note::stage, 0, text); }

void Emitter::begin() {
    CollectNotes::add(getSize(), Note::general_register, args().getIdx(), "args");
    for (int index : kCalleeSaved) push(Gpr(index));
}

void Emitter::end() {
    stage("end");
    for (int i = int(std::size(kCalleeSaved)) - 1; i >= 0; --i) pop(Gpr(kCalleeSaved[i]));
    vzeroupper();
    ret();
}

Status Emitter::finish(std::vector<uint8_t>* bytes) {
    align(64);
    if (!pool_.empty()) CollectNotes::add(getSize(), Note::data, 0, "");
    for (auto& [words, label] : pool_) {
        L(label);
        for (uint32_t bits : words) dd(bits);
    }
    bytes->assign(getCode(), getCode() + getSize());
    return {};
}

Address Emitter::constant(const std::vector<uint32_t>& words) { return ptr[rip + pool_[words]]; }
Address Emitter::splat_bits(uint32_t bits) { return constant(std::vector<uint32_t>(size_t(lanes()), bits)); }
Address Emitter::splat(float value) { return splat_bits(float_bits(value)); }

// ---- loads and stores ----

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
    vmovups(v, constant(order));
    vpermps(wide, wide, ptr[at]);
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
        whole ? vcvtph2ps(v, ptr[at]) : vcvtph2ps(v, half_of(v));
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

void Emitter::load_dword_of_eight_lanes(const Vec& v, const RegExp& at, int n) {
    const Xbyak::Ymm y(v.getIdx());
    const Xbyak::Xmm x(v.getIdx());
    if (n < lanes() / 2) load_bytes(Vec(x), at, n);
    if (!is_512()) return n < 4 ? vpbroadcastd(y, x) : vpbroadcastd(y, ptr[at]);
    Temp upper(*this, "upper dword");
    const Xbyak::Ymm high((*upper).getIdx());
    if (n < 8) {
        vpshufd(Xbyak::Xmm(high.getIdx()), x, 1);
        vpbroadcastd(high, Xbyak::Xmm(high.getIdx()));
        vpbroadcastd(y, x);
    } else {
        vpbroadcastd(high, ptr[at + 4]);
        vpbroadcastd(y, ptr[at]);
    }
    vinserti64x4(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(v.getIdx()), high, 1);
}

void Emitter::load_nibbles(const Vec& v, const RegExp& at, bool high) {
    vpmovzxbd(v, ptr[at]);
    high ? vpsrld(v, v, 4) : bit_and(v, v, splat_bits(15));
}

void Emitter::load_nibbles(const Vec& v, const RegExp& at, bool high, const std::vector<float>& numbers) {
    std::vector<uint32_t> words, bytes(4, 0);
    bool linear = true;
    for (int i = 0; i < 16; ++i) {
        words.push_back(float_bits(numbers[size_t(i)]));
        bytes[size_t(i / 4)] |= uint32_t(uint8_t(int8_t(numbers[size_t(i)]))) << (i % 4 * 8);
        linear = linear && numbers[size_t(i)] == numbers[0] + float(i);
    }
    if (is_512()) {  // vpermps takes the low four bits of an index
        vpmovzxbd(v, ptr[at]);
        if (high) vpsrld(v, v, 4);
        return vpermps(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(v.getIdx()), constant(words));
    }
    const Xbyak::Xmm x(v.getIdx());
    if (linear) {
        load_nibbles(v, at, high);
        if (numbers[0] != 0) vpaddd(v, v, splat_bits(uint32_t(int32_t(numbers[0]))));
    } else {
        Temp table(*this, "nibbles.table");
        const Xbyak::Xmm t((*table).getIdx());
        bytes.resize(size_t(lanes()), 0);
        vmovq(x, ptr[at]);
        if (high) vpsrlw(x, x, 4);
        vpand(x, x, splat_bits(0x0f0f0f0f));
        vmovdqu(t, constant(bytes));
        vpshufb(x, t, x);
        vpmovsxbd(v, x);
    }
    vcvtdq2ps(v, v);
}

void Emitter::gather_halves(const Xbyak::Xmm& x, const RegExp& at, int stride, int each, int count) {
    for (int i = 0; i < count; ++i)
        each == 1 ? vpinsrw(x, x, ptr[at + i * stride], uint8_t(i))
                  : vpinsrd(x, x, ptr[at + i * stride], uint8_t(i));
}

void Emitter::load_halves(const Vec& v, const RegExp& at, int stride, int each, int count) {
    const Xbyak::Xmm x(v.getIdx());
    const int most = 8 / each;  // in 128 bits
    zero(v);
    gather_halves(x, at, stride, each, std::min(count, most));
    if (count > most) {
        Temp upper(*this, "upper halves");
        const Xbyak::Xmm high((*upper).getIdx());
        zero(upper);
        gather_halves(high, at + most * stride, stride, each, count - most);
        vinserti32x4(Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), high, 1);
    }
    vcvtph2ps(v, half_of(v));
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

// ---- arithmetic ----

void Emitter::zero(const Vec& v) {
    const Xbyak::Xmm x(v.getIdx());  // clears the whole register
    is_512() ? vpxord(v, v, v) : vxorps(x, x, x);
}

void Emitter::bit_and(const Vec& d, const Vec& a, const Address& b) {
    is_512() ? vpandd(d, a, b) : vpand(d, a, b);
}

void Emitter::bit_or(const Vec& d, const Vec& a, const Vec& b) { is_512() ? vpord(d, a, b) : vpor(d, a, b); }

void Emitter::multiply_by_scalar(const Vec& v, const RegExp& at) {
    if (is_512()) return vmulps(v, v, ptr_b[at]);
    Temp factor(*this, "scalar");
    vbroadcastss(factor, ptr[at]);
    vmulps(v, v, factor);
}

void Emitter::add_scalar(const Vec& v, const RegExp& at) {
    if (is_512()) return vaddps(v, v, ptr_b[at]);
    Temp scalar(*this, "scalar");
    vbroadcastss(scalar, ptr[at]);
    vaddps(v, v, scalar);
}

void Emitter::round_nearest(const Vec& d, const Vec& s) {
    is_512() ? vrndscaleps(d, s, 0) : vroundps(d, s, 0);
}

void Emitter::scale_by_power_of_two(const Vec& x, const Vec& p, const Vec& n) {
    if (is_512()) return vscalefps(x, p, n);
    vcvtps2dq(n, n);
    vpaddd(n, n, splat_bits(127));
    vpslld(n, n, 23);
    vmulps(x, p, n);
}

void Emitter::keep_in_range(const Vec& v, const Vec& index, const Xbyak::Operand& begin,
                            const Xbyak::Operand& end, const Xbyak::Operand& otherwise) {
    Temp bound(*this, "range.bound");
    vmovups(bound, end);
    if (is_512()) {
        vpcmpgtd(k2, bound, index);
        vmovups(bound, begin);
        vpcmpgtd(k3, bound, index);
        kandnq(k2, k3, k2);
        vmovups(bound, otherwise);
        vmovaps(*bound | k2, v);
        vmovaps(v, bound);
    } else {
        Temp before(*this, "range.before");
        vpcmpgtd(bound, bound, index);
        vmovups(before, begin);
        vpcmpgtd(before, before, index);
        vpandn(bound, before, bound);
        vmovups(before, otherwise);
        vblendvps(v, before, v, bound);
    }
}

void Emitter::replace_where_equal(const Vec& v, const Vec& key, float value) {
    Temp wanted(*this, "equal.value");
    vmovups(wanted, splat(value));
    if (is_512()) {
        vcmpps(k2, key, wanted, kEqual);
        vmovaps(v | k2, wanted);
    } else {
        Temp equal(*this, "equal");
        vcmpps(equal, key, wanted, kEqual);
        vblendvps(v, v, wanted, equal);
    }
}

void Emitter::zero_nan(const Vec& v) {
    if (is_512()) {
        vcmpps(k2, v, v, kOrdered);
        vmovaps(v | k2 | T_z, v);
    } else {
        Temp number(*this, "nan.ordered");
        vcmpps(number, v, v, kOrdered);
        vandps(v, v, number);
    }
}

void Emitter::select_below(const Vec& d, const Vec& magnitude, float bound, const Vec& a) {
    if (is_512()) {
        vcmpps(k2, magnitude, splat(bound), kLess);
        vmovaps(d | k2, a);
    } else {
        Temp below(*this, "below");
        vcmpps(below, magnitude, splat(bound), kLess);
        vblendvps(d, d, a, below);
    }
}

void Emitter::round_to(quire_type type, const Vec& v) {
    if (type == QUIRE_F16) {
        vcvtps2ph(half_of(v), v, 0);
        vcvtph2ps(v, half_of(v));
    } else if (type == QUIRE_BF16) {
        round_bits_to_bf16(v);
        bit_and(v, v, splat_bits(0xffff0000));
    }
}

void Emitter::store_half(const RegExp& at, const Vec& v, int half) {
    if (half == 0)
        vmovups(ptr[at], Xbyak::Ymm(v.getIdx()));
    else
        vextractf64x4(ptr[at], Xbyak::Zmm(v.getIdx()), 1);
}

// ---- across lanes ----

void Emitter::fold_step(Fold op, const Vec& v, const Vec& moved) {
    op == Fold::sum ? vaddps(v, v, moved) : vmaxps(v, v, moved);
}

void Emitter::fold(Fold op, const Vec& v) {
    Temp moved(*this, "fold");
    if (is_512()) {
        const Xbyak::Zmm z(v.getIdx()), moved_z((*moved).getIdx());
        vshuff32x4(moved_z, z, z, 0x4e);
        fold_step(op, v, moved);
        vshuff32x4(moved_z, z, z, 0xb1);
    } else {
        vperm2f128(Xbyak::Ymm((*moved).getIdx()), Xbyak::Ymm(v.getIdx()), Xbyak::Ymm(v.getIdx()), 0x01);
    }
    fold_step(op, v, moved);
    vshufps(moved, v, v, 0x4e);
    fold_step(op, v, moved);
    vshufps(moved, v, v, 0xb1);
    fold_step(op, v, moved);
}

// zmm -> its ymm: upper half added to the lower.
void Emitter::add_halves(const Vec& v) {
    Temp upper(*this, "upper");
    const Xbyak::Ymm low(v.getIdx()), high((*upper).getIdx());
    vextractf64x4(high, Xbyak::Zmm(v.getIdx()), 1);
    vaddps(low, low, high);
}

void Emitter::sum_four(const Vec& d, Vec a, Vec b, Vec c, Vec e) {
    if (is_512())
        for (const Vec& v : {a, b, c, e}) add_halves(v);
    const auto y = [](const Vec& v) { return Xbyak::Ymm(v.getIdx()); };
    const auto x = [](const Vec& v) { return Xbyak::Xmm(v.getIdx()); };
    Temp upper(*this, "sum.upper");
    // Within 128 bits: {a0+a2, b0+b2, a1+a3, b1+b3}, the same of c and e, then {a, b, c, e}. (vhaddps costs
    // as much and cannot name registers above 15.)
    vunpckhps(y(upper), y(a), y(b));
    vunpcklps(y(a), y(a), y(b));
    vaddps(y(a), y(a), y(upper));
    vunpckhps(y(upper), y(c), y(e));
    vunpcklps(y(c), y(c), y(e));
    vaddps(y(c), y(c), y(upper));
    vunpckhpd(y(upper), y(a), y(c));
    vunpcklpd(y(a), y(a), y(c));
    vaddps(y(a), y(a), y(upper));
    is_512() ? vextractf32x4(x(upper), y(a), 1) : vextractf128(x(upper), y(a), 1);
    vaddps(x(d), x(a), x(upper));
}

Temp::Temp(Emitter& e, const char* name) : e_(e), v_(e.vec(name)) {}
Temp::~Temp() { e_.free(v_); }

}  // namespace quire::jit
