// What queries of bytes have in common, of one digit or more (jit/byte_loader.h: ByteTileForm).
#pragma once
#include <vector>

#include "jit/byte_loader.h"
#include "jit/tile_query_emitter.h"

namespace quire::jit {

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

}  // namespace quire::jit
