// What queries of bytes have in common, of one digit or more (jit/byte_loader.h: ByteTileForm).
#pragma once
#include <vector>

#include "jit/byte_loader.h"
#include "jit/tile_query_emitter.h"
#include "src/half.h"

namespace quire::jit {

// Elements in the order of the keys' bytes, and numbers behind the bytes.
class TileQueryOrdered : public TileQuery {
protected:
    TileQueryOrdered(const RowKey& key, int digits)
        : TileQuery(key),
          form_(key.format, digits, *key.target),
          order_(byte_tile_order(key.format, key.dim)) {}

    // emit_part(first) of all parts, with `numbers_` at their numbers.
    template <typename EmitPart>
    void emit_parts(const EmitPart& emit_part) {
        mov(columns_, ptr[args() + offsetof(TileQueryArgs, columns)]);
        mov(query_, ptr[args() + offsetof(TileQueryArgs, query)]);
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

    Address element(int i) const { return column(order_[size_t(i)]); }

    // A span's elements as bytes, four a lane, and `sum` their sum. An element becomes a whole number when it
    // is added to kByteTileZero, in the lowest bits of that: a multiplication and it are one operation.
    void emit_span_bytes(int first, const Vec& inverse, const Vec& sum) {
        const bool by_dots = key_.target->vnni;
        Temp whole(*this, "whole"), ones(*this, "ones");
        vmovups(whole, splat(kByteTileZero));
        if (by_dots) vmovups(ones, splat_bits(0x01010101));
        by_dots ? zero(sum) : vmovups(sum, splat_bits(0 - float_bits(kByteTileZero) * kByteTileSpan));
        for (int i = 0; i < kByteTileSpan; i += 4) {
            Temp bytes(*this, "bytes");
            emit_bytes(first + i, inverse, whole, bytes, by_dots ? nullptr : &sum);
            if (by_dots) dot_bytes(sum, ones, *bytes);
            emit_store(bytes);
        }
    }

    // With the bytes' offsets no carry goes from one to the next; what else is added here is `whole`'s bits.
    void emit_bytes(int first, const Vec& inverse, const Vec& whole, const Vec& bytes, const Vec* sum) {
        constexpr uint32_t kOffsets = 0x80808080;
        uint32_t begin = kOffsets;
        for (int i = 0; i < 4; ++i) begin -= float_bits(kByteTileZero) << 8 * i;
        vmovups(bytes, splat_bits(begin));
        for (int i = 0; i < 4; ++i) {
            Temp x(*this, "x");
            vmovaps(x, inverse);
            vfmadd132ps(x, whole, element(first + i));
            if (sum) vpaddd(*sum, *sum, x);
            if (i > 0) vpslld(x, x, uint8_t(8 * i));
            vpaddd(bytes, bytes, x);
        }
        bit_xor(bytes, bytes, splat_bits(kOffsets));
    }

    void emit_number(const Vec& v) {
        vmovups(ptr[numbers_], v);
        add(numbers_, stride_);
    }

    // top = largest magnitude of a span's columns
    void emit_span_top(int first, const Vec& top) {
        vmovups(top, splat(kLeastTop));
        for (int i = 0; i < kByteTileSpan; ++i) emit_top(top, element(first + i));
    }

    // unit = NaN where it is not finite, or a part's sum of so many might not be.
    void emit_poison(const Vec& unit) {
        constexpr float kMost = kByteTileZero * 16;
        Temp poison(*this, "poison");
        vmulps(poison, unit, splat(kMost));
        vfmadd231ps(unit, poison, splat(0.f));
    }

    // v *= the codes' zero
    void emit_zeros(const Vec& v) { vpslld(v, v, byte_zero_bits(key_.format)); }

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

}  // namespace quire::jit
