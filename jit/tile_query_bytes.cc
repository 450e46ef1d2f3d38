#include "jit/byte_loader.h"
#include "jit/tile_query.h"
#include "jit/tile_query_emitter.h"

namespace quire::jit {
namespace {

// Elements in the order of the keys' bytes, and numbers behind the bytes.
class TileQueryOrdered : public TileQuery {
protected:
    TileQueryOrdered(const RowKey& key, int digits)
        : TileQuery(key),
          form_(key.format, digits, *key.target),
          order_(byte_tile_order(key.format, key.dim)) {}

    void emit_parts() {
        mov(numbers_, stride_);
        imul(numbers_, numbers_, form_.digits * key_.dim / 4);
        add(numbers_, query_);
        repeat(key_.dim / turn(), [&] {
            for (int first = 0; first < turn(); first += form_.part) {
                stage("elements from " + std::to_string(first));
                emit_part(first);
            }
            add(columns_, turn() * vec_bytes());
        });
    }

    virtual void emit_part(int first) = 0;

    Address element(int i) const { return column(order_[size_t(i)]); }

    // Four elements as a lane of bytes, their sum added to `sum`. With the bytes' offsets no carry goes from
    // one to the next.
    void emit_bytes(int first, const Vec& inverse, const Vec& sum) {
        constexpr uint32_t kOffsets = 0x80808080;
        Temp bytes(*this, "bytes"), x(*this, "x");
        vmovups(bytes, splat_bits(kOffsets));
        for (int i = 0; i < 4; ++i) {
            vmulps(x, inverse, element(first + i));
            vcvtps2dq(x, x);
            vpaddd(sum, sum, x);
            if (i > 0) vpslld(x, x, uint8_t(8 * i));
            vpaddd(bytes, bytes, x);
        }
        bit_xor(bytes, bytes, splat_bits(kOffsets));
        emit_store(bytes);
    }

    void emit_number(const Vec& v) {
        vmovups(ptr[numbers_], v);
        add(numbers_, stride_);
    }

    // v *= the codes' zero
    void emit_zeros(const Vec& v) { vpslld(v, v, byte_zero(key_.format) == 128 ? 7 : 3); }

    const ByteTileForm form_;
    const Gpr numbers_ = gpr("numbers");

private:
    // Elements after which the order goes on as from the beginning: whole parts.
    int turn() const {
        for (int turn = form_.part; turn < key_.dim; turn += form_.part)
            if (key_.dim % turn == 0 && repeats(turn)) return turn;
        return key_.dim;
    }
    bool repeats(int turn) const {
        for (int i = turn; i < key_.dim; ++i)
            if (order_[size_t(i)] != order_[size_t(i - turn)] + turn) return false;
        return true;
    }

    const std::vector<int> order_;
};

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
    static constexpr float kLargestByte = 127, kMostSpans = 16;

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
        vmovups(top, splat(kLeastTop));
        for (int i = 0; i < kByteTileSpan; ++i) emit_top(top, element(first + i));
        vmulps(factor, top, splat(1 / units));
        Temp poison(*this, "poison"), divided(*this, "divided");
        vmulps(poison, factor, splat(kByteTileZero * kMostSpans));
        vfmadd231ps(factor, poison, splat(0.f));
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
    // A part's sums may be as many units, and are finite where their largest number is.
    static constexpr float kMostUnits = kByteTileZero * 16;

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
        emit_unit(larger);
        for (const Vec& unit : units) vmulps(unit, unit, larger);
        emit_number(units[1]);
        for (int i : {0, 1}) emit_span(firsts[i], units[size_t(i)], zeros);
        free(units);
    }

    void emit_span_top(int first, const Vec& top) {
        vmovups(top, splat(kLeastTop));
        for (int i = 0; i < kByteTileSpan; ++i) emit_top(top, element(first + i));
    }

    // top = the least power of two from top / larger and 2^-kLargestShift on
    void emit_share(const Vec& top, const Vec& larger) {
        vdivps(top, top, larger);
        vmaxps(top, top, splat(1.f / (1 << kLargestShift)));
        vpaddd(top, top, splat_bits(0x7fffff));
        bit_and(top, top, splat_bits(0x7f800000));
    }

    // top / 127; NaN where an element is not finite, or a sum might not be.
    void emit_unit(const Vec& top) {
        Temp poison(*this, "poison");
        vmulps(top, top, splat(1 / kLargestByte));
        vmulps(poison, top, splat(kMostUnits));
        vfmadd231ps(top, poison, splat(0.f));
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
        for (int i = 0; i < form_.part; i += 2 * kByteTileSpan) emit_pair(first + i, start);
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

// On targets with 512 bits.
//
// top = largest magnitude of each lane;  factors = top / kLargestOfTwo, NaN where top is not finite
// for each part: w = round(columns / factor) = 256 high + low
//   bytes = [high, low][part], four a lane
//   numbers: -zero * the sum of w
class TileQueryTwoBytes : public TileQueryOrdered {
public:
    explicit TileQueryTwoBytes(const RowKey& key) : TileQueryOrdered(key, 2) {
        begin();
        emit_pointers();
        emit_row_factors(inverse_, kLargestOfTwo);
        vmovups(offsets_, splat_bits(0x80808080));
        emit_parts();
        end();
    }

private:
    static constexpr float kLargestOfTwo = float(largest_digits(2));

    void emit_part(int first) override {
        Temp all(*this, "all"), none(*this, "none");
        zero(all);
        mov(run_, stride_);
        imul(run_, run_, form_.part / 4);
        for (int i = 0; i < form_.part; i += 4) emit_four(first + i, all);
        add(query_, run_);
        zero(none);
        vpsubd(all, none, all);
        emit_zeros(all);
        emit_number(all);
    }

    // With offsets added the digits of a number are bytes from 0 on, and those of two fill a lane.
    void emit_four(int first, const Vec& all) {
        const std::vector<Vec> x = vecs("x", 4);
        for (int i = 0; i < 4; ++i) {
            vmulps(x[size_t(i)], inverse_, element(first + i));
            vcvtps2dq(x[size_t(i)], x[size_t(i)]);
            vpaddd(all, all, x[size_t(i)]);
            vpaddd(x[size_t(i)], x[size_t(i)], splat_bits(0x8080));
        }
        for (int i : {0, 1}) {
            vpslld(x[size_t(i + 2)], x[size_t(i + 2)], 16);
            bit_or(x[size_t(i)], x[size_t(i)], x[size_t(i + 2)]);
        }
        const Vec &low = x[0], &high = x[2], &odd = x[1], &shifted = x[3];
        vpsrld(high, low, 8);
        vpslld(shifted, odd, 8);
        select_bits(high, 0xff00ff00, odd);
        select_bits(low, 0xff00ff00, shifted);
        for (const Vec* v : {&high, &low}) bit_xor(*v, *v, offsets_);
        vmovups(ptr[query_], high);
        vmovups(ptr[query_ + run_], low);
        add(query_, stride_);
        free(x);
    }

    const Vec inverse_ = vec("inverse"), offsets_ = vec("offsets");
    const Gpr run_ = gpr("run");
};

// On targets with 512 bits.
//
// top = largest magnitude of each lane;  factors = top / kLargestOfThree, NaN where top is not finite
// for each part: w = round(columns / factor) = 65536 high + 256 middle + low
//   bytes = [high, middle, low][part], four a lane
//   numbers: -zero * the sum of w; or for two sums of high, and of 256 middle + low
class TileQueryThreeBytes : public TileQueryOrdered {
public:
    explicit TileQueryThreeBytes(const RowKey& key) : TileQueryOrdered(key, 3) {
        begin();
        emit_pointers();
        emit_row_factors(inverse_, kLargestOfThree);
        vmovups(offsets_, splat_bits(kOffsets));
        emit_parts();
        end();
    }

private:
    // With it added the digits are bytes from 0 on, and no carry goes from one to the next.
    static constexpr uint32_t kOffsets = 0x80808080, kOfThree = 0x808080;

    void emit_part(int first) override {
        Temp all(*this, "all"), high(*this, "high");
        zero(all);
        zero(high);
        mov(run_, stride_);
        imul(run_, run_, form_.part / 4);
        for (int i = 0; i < form_.part; i += 4) emit_four(first + i, all, high);
        lea(query_, ptr[query_ + run_ * 2]);
        emit_starts(all, high);
    }

    // all, high: the sums of numbers, and of their first digits.
    void emit_starts(const Vec& all, const Vec& high) {
        Temp none(*this, "none");
        zero(none);
        if (form_.sums == 2) {
            Temp first(*this, "first");
            vpslld(first, high, 16);
            vpsubd(all, all, first);
            vpsubd(high, none, high);
            emit_zeros(high);
            emit_number(high);
        }
        vpsubd(all, none, all);
        emit_zeros(all);
        emit_number(all);
    }

    void emit_four(int first, const Vec& all, const Vec& high) {
        const std::vector<Vec> x = vecs("x", 4);
        for (int i = 0; i < 4; ++i) {
            vmulps(x[size_t(i)], inverse_, element(first + i));
            vcvtps2dq(x[size_t(i)], x[size_t(i)]);
            vpaddd(all, all, x[size_t(i)]);
            vpaddd(x[size_t(i)], x[size_t(i)], splat_bits(kOfThree));
        }
        emit_middle(x);
        emit_others(x, high);
        free(x);
        add(query_, stride_);
    }

    void emit_middle(const std::vector<Vec>& x) {
        const std::vector<Vec> v = vecs("middle", 4);
        vpsrld(v[0], x[0], 8);
        vpslld(v[2], x[2], 8);
        vpslld(v[3], x[3], 16);
        select_bits(v[0], 0xff00, x[1]);
        select_bits(v[2], 0xff000000, v[3]);
        select_bits(v[0], 0xffff0000, v[2]);
        bit_xor(v[0], v[0], offsets_);
        vmovups(ptr[query_ + run_], v[0]);
        free(v);
    }

    // Of the highest and lowest digits of two numbers each, those of four.
    void emit_others(const std::vector<Vec>& x, const Vec& high) {
        for (int i : {0, 2}) {
            vpslld(x[size_t(i + 1)], x[size_t(i + 1)], 8);
            select_bits(x[size_t(i)], 0xff00ff00, x[size_t(i + 1)]);
        }
        vpslld(x[1], x[2], 16);
        vpsrld(x[3], x[0], 16);
        select_bits(x[1], 0xffff, x[0]);
        select_bits(x[2], 0xffff, x[3]);
        for (int i : {1, 2}) bit_xor(x[size_t(i)], x[size_t(i)], offsets_);
        vmovups(ptr[query_ + run_ * 2], x[1]);
        vmovups(ptr[query_], x[2]);
        vmovups(x[0], splat_bits(0x01010101));
        dot_bytes(high, x[0], x[2]);
    }

    const Vec inverse_ = vec("inverse"), offsets_ = vec("offsets");
    const Gpr run_ = gpr("run");
};

Status generate_of_one_byte(const RowKey& keys, std::vector<uint8_t>* code) {
    const ByteTileForm form(keys.format, 1, *keys.target);
    return form.joins    ? TileQueryJoined(keys).finish(code)
           : form.shifts ? TileQueryShifted(keys).finish(code)
                         : TileQueryBytes(keys).finish(code);
}

}  // namespace

Status generate_tile_query_bytes(const RowKey& keys, std::vector<uint8_t>* code) {
    switch (keys.query_bytes()) {
        case 1: return generate_of_one_byte(keys, code);
        case 2: return TileQueryTwoBytes(keys).finish(code);
        default: return TileQueryThreeBytes(keys).finish(code);
    }
}

}  // namespace quire::jit
