#include "jit/tile_query.h"
#include "jit/tile_query_ordered.h"

namespace quire::jit {
namespace {

// for each part, for each span of it:
//   top = largest magnitude of its columns;  factor = top / 127, -top / 127 in every other span
//   bytes = round(columns / factor), four a lane
//   numbers: zero[part] = -kByteTileZero * the sum of factors, and of the span
//     start = kByteTileZero's bits - the codes' zero * the sum of bytes; factor
//
// Every other factor is negative, and its bytes the opposite: so kByteTileZero times them, which a part adds
// up with its sums, stays small, and rounding with it.
class TileQueryBytes : public TileQueryOrdered {
public:
    explicit TileQueryBytes(const RowKey& key) : TileQueryOrdered(key, 1) {
        begin();
        emit_pointers();
        emit_parts();
        end();
    }

private:
    static constexpr float kLargestByte = 127;

    void emit_part(int first) override {
        Temp zeros(*this, "zeros");
        zero(zeros);
        mov(zero_at_, numbers_);
        add(numbers_, stride_);
        for (int span = 0; span < form_.part / kByteTileSpan; ++span)
            emit_span(first + span * kByteTileSpan, span % 2 == 0 ? kLargestByte : -kLargestByte, zeros);
        vmovups(ptr[zero_at_], *zeros);
    }

    void emit_span(int first, float units, const Vec& zeros) {
        Temp factor(*this, "factor"), inverse(*this, "inverse"), start(*this, "start");
        emit_factors(first, units, factor, inverse);
        zero(start);
        for (int i = 0; i < kByteTileSpan; i += 4) emit_bytes(first + i, inverse, start);
        emit_zeros(start);
        Temp bits(*this, "bits");
        vmovups(bits, splat(kByteTileZero));
        vpsubd(start, bits, start);
        emit_number(start);
        emit_number(factor);
        vfnmadd231ps(zeros, factor, splat(kByteTileZero));
    }

    // NaN where an element is not finite, or a sum might not be.
    void emit_factors(int first, float units, const Vec& factor, const Vec& inverse) {
        const Vec& top = inverse;
        emit_span_top(first, top);
        vmulps(factor, top, splat(1 / units));
        emit_poison(factor);
        Temp divided(*this, "divided");
        vmovups(divided, splat(units));
        vdivps(inverse, divided, top);
    }

    const Gpr zero_at_ = gpr("zero at");
};

// On targets with 512 bits.
//
// for each part, for each pair of spans of it:                                       emit_pair
//   units = largest magnitude of both / 127, times a power of two for the span whose own is smaller: the
//   least
//     that is enough, at least 2^-kLargestShift
//   bytes = round(columns / unit), four a lane
//   numbers: zero[part] = -the sum of unit * the codes' zero * the sum of bytes, and of the pair
//     shift = kLargestShift + log2(first unit / second unit); factor = second unit
class TileQueryShifted : public TileQueryOrdered {
public:
    explicit TileQueryShifted(const RowKey& key) : TileQueryOrdered(key, 1) {
        begin();
        emit_pointers();
        emit_parts();
        end();
    }

private:
    static constexpr float kLargestByte = 127;

    void emit_part(int first) override {
        Temp zeros(*this, "zeros");
        zero(zeros);
        mov(zero_at_, numbers_);
        add(numbers_, stride_);
        for (int i = 0; i < form_.part; i += 2 * kByteTileSpan) emit_pair(first + i, zeros);
        vmovups(ptr[zero_at_], *zeros);
    }

    void emit_pair(int first, const Vec& zeros) {
        const int firsts[] = {first, first + kByteTileSpan};
        const std::vector<Vec> units = vecs("unit", 2);
        Temp larger(*this, "larger");
        for (int i : {0, 1}) emit_span_top(firsts[i], units[size_t(i)]);
        vpmaxsd(larger, units[0], units[1]);
        for (const Vec& unit : units) emit_share(unit, larger);
        Temp shift(*this, "shift");
        vpsubd(shift, units[0], units[1]);  // of two powers
        vpsrad(shift, shift, 23);
        vpaddd(shift, shift, splat_bits(kLargestShift));
        emit_number(shift);
        vmulps(larger, larger, splat(1 / kLargestByte));
        emit_poison(larger);
        for (const Vec& unit : units) vmulps(unit, unit, larger);
        emit_number(units[1]);
        for (int i : {0, 1}) emit_span(firsts[i], units[size_t(i)], zeros);
        free(units);
    }

    // top = the least power of two from top / larger and 2^-kLargestShift on
    void emit_share(const Vec& top, const Vec& larger) {
        vdivps(top, top, larger);
        vmaxps(top, top, splat(1.f / (1 << kLargestShift)));
        vpaddd(top, top, splat_bits(0x7fffff));
        bit_and(top, top, splat_bits(0x7f800000));
    }

    void emit_span(int first, const Vec& unit, const Vec& zeros) {
        Temp inverse(*this, "inverse"), sum(*this, "sum");
        vmovups(inverse, splat(1.f));
        vdivps(inverse, inverse, unit);
        zero(sum);
        for (int i = 0; i < kByteTileSpan; i += 4) emit_bytes(first + i, inverse, sum);
        emit_zeros(sum);
        vcvtdq2ps(sum, sum);
        vfnmadd231ps(zeros, sum, unit);
    }

    const Gpr zero_at_ = gpr("zero at");
};

// unit = largest magnitude of each lane / 127 / kLargestFactor, in `factors`; NaN where that is not finite
// for each part, for each span of it:
//   factor = the next whole number of units above its largest magnitude / 127        emit_span
//   bytes = round(columns / (factor * unit)), four a lane
//   numbers: start[part] = -the sum of factor * the codes' zero * the sum of bytes, of every second span
//     and kSpanZero;
//     for each pair of spans both factors, the first one above the other              emit_pair
//   weighed spans: the same without kSpanZero, and each span's factor twice           emit_weighed
class TileQueryJoined : public TileQueryOrdered {
public:
    explicit TileQueryJoined(const RowKey& key) : TileQueryOrdered(key, 1) {
        begin();
        emit_pointers();
        emit_row_factors(inverse_, kLargestByte * kLargestFactor);
        vmulps(units_, inverse_, splat(1 / kLargestByte));
        emit_parts();
        end();
    }

private:
    static constexpr float kLargestByte = 127;
    static constexpr int kLeastFactor = kLargestFactor / 1024;

    void emit_part(int first) override {
        Temp start(*this, "start"), none(*this, "none");
        zero(start);
        mov(start_at_, numbers_);
        add(numbers_, stride_);
        for (int i = 0; i < form_.part; i += form_.joins ? 2 * kByteTileSpan : kByteTileSpan)
            form_.joins ? emit_pair(first + i, start) : emit_weighed(first + i, start);
        zero(none);
        vpsubd(start, none, start);
        vmovups(ptr[start_at_], *start);
    }

    void emit_pair(int first, const Vec& start) {
        Temp factors(*this, "factors"), sums(*this, "sums"), factor(*this, "factor"), sum(*this, "sum");
        emit_span(first, factors, sums);
        emit_span(first + kByteTileSpan, factor, sum);
        vpaddd(sum, sum, splat_bits(kSpanZero));
        join_words(factors, factor, factors);
        join_words(sums, sum, sums);
        emit_number(factors);
        dot_words(start, sums, *factors);
    }

    void emit_weighed(int first, const Vec& start) {
        Temp factor(*this, "factor"), sum(*this, "sum"), twice(*this, "factors");
        emit_span(first, factor, sum);
        vpslld(twice, factor, 16);
        bit_or(twice, twice, factor);
        emit_number(twice);
        dot_words(start, sum, *factor);  // whose upper word is 0
    }

    void emit_span(int first, const Vec& factor, const Vec& sum) {
        Temp inverse(*this, "inverse");
        zero(factor);
        for (int i = 0; i < kByteTileSpan; ++i) emit_top(factor, element(first + i));
        vmulps(factor, factor, units_);
        vaddps(factor, factor, splat(.5f));
        vcvtps2dq(factor, factor);
        vmovups(inverse, splat_bits(kLeastFactor));
        vpmaxsd(factor, factor, inverse);
        vcvtdq2ps(inverse, factor);
        vdivps(inverse, inverse_, inverse);
        zero(sum);
        for (int i = 0; i < kByteTileSpan; i += 4) emit_bytes(first + i, inverse, sum);
        emit_zeros(sum);
    }

    const Vec inverse_ = vec("inverse of a unit"), units_ = vec("units");
    const Gpr start_at_ = gpr("start at");
};

}  // namespace

Status generate_tile_query_bytes(const RowKey& keys, std::vector<uint8_t>* code) {
    if (keys.query_bytes() > 1) return generate_tile_query_digits(keys, code);
    const ByteTileForm form(keys.format, 1, *keys.target);
    return form.joins || form.weighs ? TileQueryJoined(keys).finish(code)
           : form.shifts             ? TileQueryShifted(keys).finish(code)
                                     : TileQueryBytes(keys).finish(code);
}

}  // namespace quire::jit
