// The emitter's loads of codes of four bits.
#include <algorithm>

#include "jit/emitter.h"
#include "src/half.h"

namespace quire::jit {
namespace {

// By how much a lane's nibble of a dword is shifted, and the numbers of 16 nibbles.
std::vector<uint32_t> nibble_places(int lanes) {
    std::vector<uint32_t> places;
    for (int lane = 0; lane < lanes; ++lane) places.push_back(uint32_t(lane % 8 * 4));
    return places;
}
std::vector<uint32_t> nibble_numbers() {
    std::vector<uint32_t> numbers;
    for (int i = 0; i < 16; ++i) numbers.push_back(float_bits(float(i < 8 ? i : i - 16)));
    return numbers;
}
std::vector<uint32_t> repeated(const std::vector<uint32_t>& words, int lanes) {
    std::vector<uint32_t> all;
    for (int lane = 0; lane < lanes; ++lane) all.push_back(words[size_t(lane) % words.size()]);
    return all;
}
// [16] + zero, in each 128 bits.
std::vector<uint32_t> bytes_of_table(const int8_t* table, int zero, int lanes) {
    std::vector<uint32_t> words;
    for (int lane = 0; lane < lanes; ++lane) {
        words.push_back(0);
        for (int i = 0; i < 4; ++i)
            words.back() |= uint32_t(uint8_t(table[lane % 4 * 4 + i] + zero)) << 8 * i;
    }
    return words;
}
std::vector<uint32_t> dword_of_eight() { return {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}; }

}  // namespace

void Emitter::load_dword_of_eight_lanes(const Vec& v, const RegExp& at, int n) {
    const Xbyak::Ymm y(v.getIdx());
    const Xbyak::Xmm x(v.getIdx());
    if (n < lanes() / 2) load_bytes(Vec(x), at, n);
    if (!is_512()) return n < 4 ? vpbroadcastd(y, x) : vpbroadcastd(y, ptr[at]);
    const Xbyak::Zmm z(v.getIdx());
    if (const auto held = held_.find(dword_of_eight()); held != held_.end()) {
        if (n >= 8) vmovq(x, ptr[at]);
        return vpermd(z, Xbyak::Zmm(held->second.getIdx()), z);
    }
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
    vinserti64x4(z, z, high, 1);
}

// Each lane shifts its dword by a count of its own.
void Emitter::load_signed_nibbles(const Vec& v, const RegExp& at, int n) {
    load_dword_of_eight_lanes(v, at, n);
    std::vector<uint32_t> places = nibble_places(lanes());
    if (const auto numbers = held_.find(nibble_numbers()); numbers != held_.end()) {
        const Xbyak::Zmm z(v.getIdx());
        vpsrlvd(v, v, held_[places]);
        return vpermps(z, z, Xbyak::Zmm(numbers->second.getIdx()));  // of the low four bits
    }
    for (uint32_t& place : places) place = 28 - place;
    vpsllvd(v, v, constant(places));
    vpsrad(v, v, 28);
    vcvtdq2ps(v, v);
}

void Emitter::load_signed_nibbles(const Vec& even, const Vec& odd, const RegExp& at) {
    vpmovsxbd(even, ptr[at]);
    vpsrad(odd, even, 4);
    vpslld(even, even, 28);
    vpsrad(even, even, 28);
    for (const Vec* v : {&even, &odd}) vcvtdq2ps(*v, *v);
}

void Emitter::load_nibble_tops(const Vec& even, const Vec& odd, const RegExp& at, const Vec& upper,
                               int zero) {
    vpmovsxbd(odd, ptr[at]);
    if (zero == 8) vpxor(odd, odd, splat_bits(0xffffff88));  // to two's complement
    vpslld(even, odd, 28);
    vpand(odd, odd, upper);
    for (const Vec* v : {&even, &odd}) vcvtdq2ps(*v, *v);
}

void Emitter::hold_nibbles(int spare) {
    if (!is_512()) return;
    for (const auto& words : {nibble_places(lanes()), nibble_numbers(), dword_of_eight()}) hold(words, spare);
}

void Emitter::hold_nibble_numbers(int spare) {
    if (is_512()) hold(nibble_numbers(), spare);
}

void Emitter::load_nibble(const Vec& v, const Vec& raw, int i) {
    if (const auto numbers = held_.find(nibble_numbers()); numbers != held_.end()) {
        const Xbyak::Zmm z(v.getIdx());
        if (i > 0) vpsrld(v, raw, uint8_t(4 * i));
        return vpermps(z, Xbyak::Zmm((i > 0 ? v : raw).getIdx()), Xbyak::Zmm(numbers->second.getIdx()));
    }
    if (i < 7) vpslld(v, raw, uint8_t(28 - 4 * i));
    vpsrad(v, i < 7 ? v : raw, 28);
    vcvtdq2ps(v, v);
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

void Emitter::look_up_nibbles(const std::vector<Vec>& list, const int8_t* table, int zero) {
    const std::vector<uint32_t> bytes = bytes_of_table(table, zero, lanes());
    const auto held = held_.find(bytes);
    const Vec numbers = held != held_.end() ? held->second : vec("numbers of nibbles");
    if (held == held_.end()) vmovups(numbers, constant(bytes));
    for (const Vec& v : list)
        v.isXMM()   ? vpshufb(v, Xbyak::Xmm(numbers.getIdx()), v)
        : v.isYMM() ? vpshufb(v, Xbyak::Ymm(numbers.getIdx()), v)
                    : vpshufb(v, numbers, v);
    if (held == held_.end()) free(numbers);
}

void Emitter::separate_nibbles(const Vec& low, const Vec& high) {
    const Vec a = half_of(low), b = half_of(high);
    vpsrlw(b, a, 4);
    for (const Vec* v : {&a, &b}) bit_and(*v, *v, splat_bits(0x0f0f0f0f));
}

void Emitter::take_fifth_bits(const Vec& v, const Vec& bits, const FifthBits& at) {
    const Vec half = half_of(v);
    Temp spread(*this, "spread bits");
    const Vec s = half_of(spread);
    vpshufb(s, half_of(bits), constant(repeated(at.bytes, lanes())));
    if (is_512()) {
        vptestmb(k2, s, constant(repeated(at.of_bytes, lanes())));
        vpord(half, half, splat_bits(0xf0f0f0f0));
        return vpaddb(half | k2, half, splat_bits(0x10101010));
    }
    vpand(s, s, constant(repeated(at.of_bytes, lanes())));
    vpcmpeqb(s, s, constant(repeated(at.of_bytes, lanes())));
    vpandn(s, s, splat_bits(0xf0f0f0f0));
    vpor(half, half, s);
}

void Emitter::load_five_bits(const Vec& v, const std::vector<RegExp>& blocks, int codes, int bits) {
    Temp other(*this, "other block, bits");
    const Xbyak::Ymm y(v.getIdx()), o((*other).getIdx());
    const auto load = [&](const Xbyak::Ymm& to, const RegExp& block) {
        is_512() ? vbroadcasti32x4(to, ptr[block + codes]) : vbroadcasti128(to, ptr[block + codes]);
    };
    load(y, blocks[0]);
    if (blocks.size() > 1) {
        load(o, blocks[1]);
        vinserti64x4(Xbyak::Zmm(v.getIdx()), Xbyak::Zmm(v.getIdx()), o, 1);
    }
    vpsrlvd(v, v, constant(repeated({0, 0, 0, 0, 4, 4, 4, 4}, lanes())));
    bit_and(v, v, splat_bits(0x0f0f0f0f));
    if (is_512()) {  // the bits are in the order of the bytes
        kmovd(k2, ptr[blocks[0] + bits]);
        if (blocks.size() > 1) {
            kmovd(k1, ptr[blocks[1] + bits]);
            kunpckdq(k2, k1, k2);
        }
        return vpaddb(v | k2, v, splat_bits(0x10101010));
    }
    vpbroadcastd(o, ptr[blocks[0] + bits]);
    vpshufb(o, o, constant({0, 0, 0x01010101, 0x01010101, 0x02020202, 0x02020202, 0x03030303, 0x03030303}));
    const Address each = constant(repeated({0x08040201, 0x80402010}, lanes()));
    vpand(o, o, each);
    vpcmpeqb(o, o, each);
    vpand(o, o, splat_bits(0x10101010));
    vpor(y, y, o);
}

void Emitter::hold_nibble_table(const int8_t* table, int zero, int spare) {
    hold(bytes_of_table(table, zero, lanes()), spare);
}

// Those of `low`, as signed bytes.
void Emitter::split_nibbles(const Vec& low, const Vec& high, int zero) {
    Temp numbers(*this, "nibble numbers");
    std::vector<uint32_t> bytes = {0x03020100, 0x07060504, 0xfbfaf9f8, 0xfffefdfc};
    if (zero == 8) std::rotate(bytes.begin(), bytes.begin() + 2, bytes.end());
    bytes.insert(bytes.end(), bytes.begin(), bytes.end());  // of both halves
    vmovups(numbers, constant(bytes));
    vpsrlw(high, low, 4);
    for (const Vec* v : {&high, &low}) {
        vpand(*v, *v, splat_bits(0x0f0f0f0f));
        vpshufb(*v, numbers, *v);
    }
}

void Emitter::load_nibble_bytes(const Vec& low, const Vec& high, const RegExp& at) {
    vmovups(low, ptr[at]);
    split_nibbles(low, high, 0);
}

}  // namespace quire::jit
