#include "jit/tile_query.h"
#include "jit/tile_query_ordered.h"

namespace quire::jit {
namespace {

// Rounding an element needs a division before, which needs the largest of a span. That is some 60 cycles in
// which a processor does not get as far as the next span's: so they are done of all spans first.
class TileQueryOneByte : public TileQueryOrdered {
protected:
    explicit TileQueryOneByte(const RowKey& key) : TileQueryOrdered(key, 1) {}

    static constexpr float kLargestByte = 127;
    static constexpr int kKept = kByteTileSpan / 4;  // vectors of a span

    // In the place of its bytes, which are not there yet.
    void keep(const Vec& v) { emit_store(v); }
    std::vector<Vec> take_kept(int spans) {
        const std::vector<Vec> kept = vecs("kept", spans * kKept);
        mov(kept_, query_);
        for (const Vec& v : kept) {
            vmovups(v, ptr[kept_]);
            add(kept_, stride_);
        }
        return kept;
    }

private:
    const Gpr kept_ = gpr("kept");
};

// for each part, for each span of it:
//   top = largest magnitude of its columns;  factor = top / 127, -top / 127 in every other span
// for each part, for each span of it:
//   bytes = round(columns / factor), four a lane
//   numbers: zero[part] = -kByteTileZero * the sum of factors, and of the span
//     start = kByteTileZero's bits - the codes' zero * the sum of bytes; factor
//
// Every other factor is negative, and its bytes the opposite: so kByteTileZero times them, which a part adds
// up with its sums, stays small, and rounding with it.
class TileQueryBytes : public TileQueryOneByte {
public:
    explicit TileQueryBytes(const RowKey& key) : TileQueryOneByte(key) {
        begin();
        emit_pointers();
        emit_parts([&](int first) {
            for (int span = 0; span < form_.part / kByteTileSpan; ++span)
                emit_factors(first + span * kByteTileSpan, span % 2 == 0 ? kLargestByte : -kLargestByte);
        });
        emit_parts([&](int first) { emit_part(first); });
        end();
    }

private:
    void emit_part(int first) {
        Temp zeros(*this, "zeros");
        zero(zeros);
        mov(zero_at_, numbers_);
        add(numbers_, stride_);
        for (int i = 0; i < form_.part; i += kByteTileSpan) emit_span(first + i, zeros);
        vmovups(ptr[zero_at_], *zeros);
    }

    void emit_span(int first, const Vec& zeros) {
        const std::vector<Vec> kept = take_kept(1);
        const Vec &factor = kept[0], &inverse = kept[1];
        Temp start(*this, "start"), bits(*this, "bits");
        emit_span_bytes(first, inverse, start);
        emit_zeros(start);
        vmovups(bits, splat(kByteTileZero));
        vpsubd(start, bits, start);
        emit_number(start);
        emit_number(factor);
        vfnmadd231ps(zeros, factor, splat(kByteTileZero));
        free(kept);
    }

    // NaN where an element is not finite, or a sum might not be.
    void emit_factors(int first, float units) {
        Temp top(*this, "top"), factor(*this, "factor"), inverse(*this, "inverse");
        emit_span_top(first, top);
        vmulps(factor, top, splat(1 / units));
        emit_poison(factor);
        vmovups(inverse, splat(units));
        vdivps(inverse, inverse, top);
        keep(factor);
        keep(inverse);
    }

    const Gpr zero_at_ = gpr("zero at");
};

// On targets with 512 bits.
//
// for each part, for each pair of spans of it:                                       emit_units
//   units = largest magnitude of both / 127, times a power of two for the span whose own is smaller: the
//   least
//     that is enough, at least 2^-kLargestShift
// for each part, for each pair of spans of it:                                       emit_pair
//   bytes = round(columns / unit), four a lane
//   numbers: zero[part] = -the sum of unit * the codes' zero * the sum of bytes, and of the pair
//     shift = kLargestShift + log2(first unit / second unit); factor = second unit
class TileQueryShifted : public TileQueryOneByte {
public:
    explicit TileQueryShifted(const RowKey& key) : TileQueryOneByte(key) {
        begin();
        emit_pointers();
        emit_parts([&](int first) {
            for (int i = 0; i < form_.part; i += 2 * kByteTileSpan) emit_units(first + i);
        });
        emit_parts([&](int first) { emit_part(first); });
        end();
    }

private:
    void emit_units(int first) {
        const std::vector<Vec> units = vecs("unit", 2);
        Temp larger(*this, "larger"), inverse(*this, "inverse"), of_power(*this, "inverse of a unit");
        for (int i : {0, 1}) emit_span_top(first + i * kByteTileSpan, units[size_t(i)]);
        vpmaxsd(larger, units[0], units[1]);
        vmovups(inverse, splat(1.f));
        vdivps(inverse, inverse, larger);
        for (const Vec& unit : units) emit_share(unit, inverse);
        vmulps(inverse, inverse, splat(kLargestByte));
        vmulps(larger, larger, splat(1 / kLargestByte));
        emit_poison(larger);
        for (const Vec& unit : units) {
            vmovups(of_power, splat_bits(2 * float_bits(1.f)));  // less a power's bits, those of its inverse
            vpsubd(of_power, of_power, unit);
            vmulps(unit, unit, larger);
            vmulps(of_power, of_power, inverse);
            keep(unit);
            keep(of_power);
        }
        free(units);
    }

    // top = the least power of two from top / the larger one and 2^-kLargestShift on; at most 1, as no number
    // times its inverse is more.
    void emit_share(const Vec& top, const Vec& inverse) {
        vmulps(top, top, inverse);
        vmaxps(top, top, splat(1.f / (1 << kLargestShift)));
        vpaddd(top, top, splat_bits(0x7fffff));
        bit_and(top, top, splat_bits(0x7f800000));
    }

    void emit_part(int first) {
        Temp zeros(*this, "zeros");
        zero(zeros);
        mov(zero_at_, numbers_);
        add(numbers_, stride_);
        for (int i = 0; i < form_.part; i += 2 * kByteTileSpan) emit_pair(first + i, zeros);
        vmovups(ptr[zero_at_], *zeros);
    }

    void emit_pair(int first, const Vec& zeros) {
        const std::vector<Vec> kept = take_kept(2);
        const Vec *const units[] = {&kept[0], &kept[2]}, *const inverses[] = {&kept[1], &kept[3]};
        Temp shift(*this, "shift");
        vpsubd(shift, *units[0], *units[1]);  // of two numbers that differ by a power of two
        vpsrad(shift, shift, 23);
        vpaddd(shift, shift, splat_bits(kLargestShift));
        emit_number(shift);
        emit_number(*units[1]);
        for (int i : {0, 1}) emit_span(first + i * kByteTileSpan, *units[i], *inverses[i], zeros);
        free(kept);
    }

    void emit_span(int first, const Vec& unit, const Vec& inverse, const Vec& zeros) {
        Temp sum(*this, "sum");
        emit_span_bytes(first, inverse, sum);
        emit_zeros(sum);
        vcvtdq2ps(sum, sum);
        vfnmadd231ps(zeros, sum, unit);
    }

    const Gpr zero_at_ = gpr("zero at");
};

// unit = largest magnitude of each lane / 127 / kLargestFactor, in `factors`; NaN where that is not finite
// for each part, for each span of it:
//   factor = the next whole number of units above its largest magnitude / 127        emit_factor
// for each part, for each span of it:
//   bytes = round(columns / (factor * unit)), four a lane                            emit_span
//   numbers: start[part] = -the sum of factor * the codes' zero * the sum of bytes, of every second span
//     and kSpanZero;
//     for each pair of spans both factors, the first one above the other              emit_pair
//   weighed spans: the same without kSpanZero, and each span's factor twice           emit_weighed
class TileQueryJoined : public TileQueryOneByte {
public:
    explicit TileQueryJoined(const RowKey& key) : TileQueryOneByte(key) {
        begin();
        emit_pointers();
        emit_row_factors(inverse_, kLargestByte * kLargestFactor);
        vmulps(units_, inverse_, splat(1 / kLargestByte));
        emit_parts([&](int first) {
            for (int i = 0; i < form_.part; i += kByteTileSpan) emit_factor(first + i);
        });
        emit_parts([&](int first) { emit_part(first); });
        end();
    }

private:
    static constexpr int kLeastFactor = kLargestFactor / 1024;

    void emit_factor(int first) {
        Temp factor(*this, "factor"), inverse(*this, "inverse");
        zero(factor);
        for (int i = 0; i < kByteTileSpan; ++i) emit_top(factor, element(first + i));
        vmulps(factor, factor, units_);
        vaddps(factor, factor, splat(.5f));
        vcvtps2dq(factor, factor);
        vmovups(inverse, splat_bits(kLeastFactor));
        vpmaxsd(factor, factor, inverse);
        vcvtdq2ps(inverse, factor);
        vdivps(inverse, inverse_, inverse);
        keep(factor);
        keep(inverse);
    }

    void emit_part(int first) {
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
        const std::vector<Vec> kept = take_kept(1);
        vmovaps(factor, kept[0]);
        emit_span_bytes(first, kept[1], sum);
        emit_zeros(sum);
        free(kept);
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
