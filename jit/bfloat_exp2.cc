#include "jit/bfloat_exp2.h"

#include <cmath>

#include "jit/args.h"
#include "src/half.h"

namespace quire::jit {
namespace {

constexpr float kScale = 512;
constexpr float kOne = 127 * kScale + 1.5f;  // t of 2^0: so what the last shift takes away is 0 in the mean
constexpr int kTable = 128;

uint8_t correction(int i) {
    const double part = double(i) / kTable;  // the middle of the four t that have this i
    return uint8_t(std::lrint(kScale * (1 + part - std::exp2(part))));
}

std::vector<uint32_t> table_from(int first) {
    std::vector<uint32_t> words;
    for (int i = first; i < first + kTable / 2; i += 4) {
        uint32_t word = 0;
        for (int k = 0; k < 4; ++k) word |= uint32_t(correction(i + k)) << 8 * k;
        words.push_back(word);
    }
    return words;
}

// Words {a0..a3 b0..b3} of each 128 bits to {a0 b0 a1 b1 ..}.
std::vector<uint32_t> pairs_of_words(int lanes) {
    std::vector<uint32_t> words;
    for (int i = 0; i < lanes; ++i) {
        const uint32_t a = uint32_t(2 * (i % 4)), b = a + 8;
        words.push_back(a | (a + 1) << 8 | b << 16 | (b + 1) << 24);
    }
    return words;
}

std::vector<uint32_t> of_all(const Emitter& e, uint32_t word) {
    return std::vector<uint32_t>(size_t(e.lanes()), word);
}

}  // namespace

BfloatExp2::BfloatExp2(Emitter& e, int tops, Constants constants)
    : e_(e),
      holds_(constants == Constants::registers),
      scale_{of_all(e, float_bits(kScale)), Vec()},
      order_{pairs_of_words(e.lanes()), Vec()},
      low_table_{table_from(0), Vec()},
      ones_{of_all(e, 0x3f803f80), Vec()} {
    for (Constant* c : {&scale_, &order_, &low_table_, &ones_}) {
        if (!holds_) continue;
        c->held = e.vec("exp2.constant");
        e.vmovups(c->held, e.constant(c->words));
    }
    e.mov(e.eax, 0x55555555);
    e.kmovd(e.k4, e.eax);
    e.kunpckdq(e.k4, e.k4, e.k4);
    for (int w = 0; w < tops; ++w) e.kxnorw(ordered(w), ordered(w), ordered(w));
}

BfloatExp2::~BfloatExp2() {
    if (!holds_) return;
    for (const Constant* c : {&scale_, &order_, &low_table_, &ones_}) e_.free(c->held);
}

void BfloatExp2::load(const Vec& v, const Constant& constant) {
    holds_ ? e_.vmovaps(v, constant.held) : e_.vmovups(v, e_.constant(constant.words));
}

template <typename Use>
void BfloatExp2::with(const Constant& constant, const Use& use) {
    holds_ ? use(constant.held) : use(e_.constant(constant.words));
}

void BfloatExp2::jump_if_large(Emitter& e, const std::vector<Vec>& tops, const Label& large) {
    Temp largest(e, "largest top"), magnitude(e, "magnitude");
    e.zero(largest);
    for (const Vec& top : tops) {
        e.bit_and(magnitude, top, e.splat_bits(0x7fffffff));
        e.vmaxps(largest, largest, magnitude);
    }
    constexpr uint8_t kGreater = 14;
    e.vcmpps(e.k4, largest, e.splat(kLargestPairTop), kGreater);
    e.kortestw(e.k4, e.k4);
    e.jnz(large, Emitter::T_NEAR);
}

void BfloatExp2::scale_top(const Vec& top) {
    Temp scale(e_, "scale");
    load(scale, scale_);
    e_.vfmsub213ps(top, scale, e_.splat(kOne));
}

void BfloatExp2::emit_scaled(const Vec& t, const Vec& scaled_top, const Address& score) {
    load(t, scale_);
    e_.vfmsub132ps(t, scaled_top, score);
}

void BfloatExp2::emit_pairs(const Vec& d, const Vec& low, const Vec& high, int w) {
    constexpr uint8_t kOrdered = 7;
    e_.vcmpps(ordered(w) | ordered(w), low, high, kOrdered);  // and, so that what was not stays so
    e_.vcvtps2dq(low, low);
    e_.vcvtps2dq(high, high);
    e_.vpackusdw(d, low, high);
    with(order_, [&](const auto& order) { e_.vpshufb(d, d, order); });
    const Vec& part = high;
    e_.vpsrlw(part, d, 2);
    const auto look_up = [&](const Vec& low_table) {
        e_.vpermi2b(part | e_.k4 | e_.T_z, low_table, e_.constant(table_from(kTable / 2)));
    };
    if (holds_) {
        look_up(low_table_.held);
    } else {
        Temp table(e_, "exp2.low table");
        load(table, low_table_);
        look_up(table);
    }
    e_.vpsubw(d, d, part);
    e_.vpsrlw(d, d, 2);
}

void BfloatExp2::add_pairs(const Vec& sum, const Vec& pairs) {
    with(ones_, [&](const auto& ones) { e_.dot_bfloats(sum, pairs, ones); });
}

void BfloatExp2::keep_nan(const Vec& sum, int w) {
    e_.knotw(ordered(w), ordered(w));
    e_.vmovups(sum | ordered(w), e_.splat(NAN));
}

}  // namespace quire::jit
