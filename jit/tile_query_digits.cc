#include "jit/tile_query.h"
#include "jit/tile_query_ordered.h"

namespace quire::jit {
namespace {

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
        emit_parts([&](int first) { emit_part(first); });
        end();
    }

private:
    static constexpr float kLargestOfTwo = float(largest_digits(2));

    void emit_part(int first) {
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
        emit_parts([&](int first) { emit_part(first); });
        end();
    }

private:
    // With it added the digits are bytes from 0 on, and no carry goes from one to the next.
    static constexpr uint32_t kOffsets = 0x80808080, kOfThree = 0x808080;

    void emit_part(int first) {
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

}  // namespace

Status generate_tile_query_digits(const RowKey& keys, std::vector<uint8_t>* code) {
    return keys.query_bytes() == 2 ? TileQueryTwoBytes(keys).finish(code)
                                   : TileQueryThreeBytes(keys).finish(code);
}

}  // namespace quire::jit
