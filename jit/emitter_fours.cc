// The emitter's loads of bytes of four rows, one of each in a lane.
#include "jit/emitter.h"

namespace quire::jit {
namespace {

Xbyak::Xmm x(const Vec& v) { return Xbyak::Xmm(v.getIdx()); }
Xbyak::Ymm y(const Vec& v) { return Xbyak::Ymm(v.getIdx()); }
Xbyak::Zmm z(const Vec& v) { return Xbyak::Zmm(v.getIdx()); }

// Byte k of lane i: byte `first` + i of row k, where rows are so many bytes apart.
std::vector<uint32_t> bytes_of_four(int lanes, int first, int row) {
    std::vector<uint32_t> index;
    for (int i = 0; i < lanes; ++i) {
        const uint32_t from = uint32_t(first + i), next = uint32_t(row);
        index.push_back(from | (from + next) << 8 | (from + 2 * next) << 16 | (from + 3 * next) << 24);
    }
    return index;
}

// Lane i: word i, and the one that is half a vector behind it.
std::vector<uint32_t> words_of_halves(int lanes) {
    std::vector<uint32_t> index;
    for (int i = 0; i < lanes; ++i) {
        const uint32_t low = uint32_t(2 * i), high = low + 2 * uint32_t(lanes);
        index.push_back(low | (low + 1) << 8 | high << 16 | (high + 1) << 24);
    }
    return index;
}

}  // namespace

void Emitter::hold_bytes_of_four(int spare, bool in_order) {
    if (!in_order) return hold(words_of_halves(lanes()), spare);
    for (const int first : {0, lanes()}) hold(bytes_of_four(lanes(), first, 2 * lanes()), spare);
}
void Emitter::hold_quarters_of_four(int spare) { hold(bytes_of_four(lanes(), 0, lanes()), spare); }

void Emitter::load_bytes_of_four(const Vec& first, const Vec& last, const RowAt& row_at, bool in_order) {
    Temp others(*this, "other two");
    const Vec& two = last;
    const int behind = in_order ? 1 : 2;
    for (const Vec* v : {&two, &*others}) {
        const int row = v == &two ? 0 : 3 - behind;
        vmovdqu8(y(*v), ptr[row_at(row)]);
        vinserti64x4(z(*v), z(*v), ptr[row_at(row + behind)], 1);
    }
    if (in_order) {
        const auto index = [&](int at) { return bytes_of_four(lanes(), at, 2 * lanes()); };
        permute_bytes(first, index(0), two, others);
        return permute_bytes(last, index(lanes()), two, others);
    }
    vpunpcklbw(first, two, others);
    vpunpckhbw(last, two, others);
    permute_bytes({first, last}, words_of_halves(lanes()));
}

void Emitter::permute_bytes(const Vec& d, const std::vector<uint32_t>& index, const Vec& a, const Vec& b) {
    if (const auto held = held_.find(index); held != held_.end()) {
        if (d.getIdx() != a.getIdx()) vmovaps(d, a);
        return vpermt2b(d, held->second, b);
    }
    Temp order(*this, "order");
    vmovdqu8(order, constant(index));
    vpermi2b(order, a, b);
    vmovaps(d, order);
}

void Emitter::permute_bytes(const std::vector<Vec>& list, const std::vector<uint32_t>& index) {
    const auto held = held_.find(index);
    const Vec order = held != held_.end() ? held->second : vec("order");
    if (held == held_.end()) vmovdqu8(order, constant(index));
    for (const Vec& v : list) vpermb(v, order, v);
    if (held == held_.end()) free(order);
}

void Emitter::load_quarters_of_four(const Vec& all, const RowAt& row_at) {
    Temp high(*this, "last two rows");
    vmovdqu8(x(all), ptr[row_at(0)]);
    vinserti32x4(y(all), y(all), ptr[row_at(1)], 1);
    vmovdqu8(x(high), ptr[row_at(2)]);
    vinserti32x4(y(high), y(high), ptr[row_at(3)], 1);
    vinserti64x4(z(all), z(all), y(high), 1);
    permute_bytes({all}, bytes_of_four(lanes(), 0, lanes()));
}

void Emitter::load_nibbles_of_four(const Vec& even, const Vec& odd, const RowAt& row_at, bool with_offset) {
    const Vec& all = even;
    load_quarters_of_four(all, row_at);
    if (!with_offset) vpxord(all, all, splat_bits(0x88888888));
    vpsrlw(odd, all, 4);
    vpandd(odd, odd, splat_bits(0x0f0f0f0f));
    vpandd(all, all, splat_bits(0x0f0f0f0f));
}

void Emitter::add_fifth_bits_of_four(const Vec& low, const Vec& high, const RowAt& row_at, int before) {
    Temp bits(*this, "bits of four rows"), spread(*this, "spread bits");
    for (int row = 0; row < 4; ++row) {
        const Address of_row = ptr[row_at(row) - before];
        row == 0 ? vmovd(x(bits), of_row) : vpinsrd(x(bits), x(bits), of_row, uint8_t(row));
    }
    vshufi32x4(z(bits), z(bits), z(bits), 0);
    for (const bool upper : {false, true}) {
        std::vector<uint32_t> bytes, of_lane;
        for (uint32_t i = 0; i < uint32_t(lanes()); ++i) {
            bytes.push_back(0x0c080400 + 0x01010101 * (2 * upper + i / 8));
            of_lane.push_back(0x01010101u << i % 8);
        }
        vpshufb(spread, bits, constant(bytes));
        vptestmb(k2, spread, constant(of_lane));
        const Vec& v = upper ? high : low;
        vpaddb(v | k2, v, splat_bits(0x10101010));
    }
}

void Emitter::load_upper_nibbles_of_four(const Vec& even, const Vec& odd, const RowAt& row_at) {
    load_quarters_of_four(odd, row_at);
    vpsllw(even, odd, 4);
    vpandd(even, even, splat_bits(0xf0f0f0f0));
    vpandd(odd, odd, splat_bits(0xf0f0f0f0));
}

void Emitter::load_nibbles_of_four(const Vec& even, const Vec& odd, const RowAt& row_at,
                                   const NibbleBytes& bytes) {
    const int first = bytes.upper ? bytes.at - 8 : bytes.at;
    Temp high(*this, "upper bytes");
    const Vec& all = even;
    for (const Vec* v : {&even, &odd}) {
        const int row = v == &even ? 0 : 2;
        vmovdqu(x(*v), ptr[row_at(row) + first]);
        const Address next = ptr[row_at(row + 1) + first];
        bytes.upper ? vpunpckhbw(x(*v), x(*v), next) : vpunpcklbw(x(*v), x(*v), next);
    }
    vpunpckhwd(x(high), x(even), x(odd));
    vpunpcklwd(x(all), x(even), x(odd));
    vinserti128(y(all), y(all), x(high), 1);
    split_nibbles(even, odd, bytes.zero);
}

void Emitter::load_half_of_four(const Vec& a, const Vec& b, const RowAt& row_at, int at, bool upper) {
    Temp first(*this, "first two rows");
    for (const int row : {0, 2}) {
        const Vec& v = row == 0 ? *first : b;
        vmovdqu(y(v), ptr[row_at(row) + at]);
        const Address next = ptr[row_at(row + 1) + at];
        upper ? vpunpckhbw(v, v, next) : vpunpcklbw(v, v, next);
    }
    vpunpcklwd(a, first, b);
    vpunpckhwd(b, first, b);
}

}  // namespace quire::jit
