#include "jit/query_fours.h"

#include "jit/byte_loader.h"
#include "jit/query_emitter.h"

namespace quire::jit {
namespace {

// top = largest magnitude of the row
// digits: factors[0] = top / largest_digits, NaN where top is not finite
// for each chunk, quarter i of a vector's lanes being the elements of 16 of its bytes:      emit_chunk
//   x[part][i] = 16 elements                                                              load_numbers
//   bytes: top[run of dwords] = largest magnitude in all parts, factors = top / 127       choose_factors
//          (joined runs: the next whole number of units of the row's)
//   x = round(x / factor)
//   for each digit, the lowest first:                                                     emit_digit
//     packed = dword j of quarter i to dword i of 128 bits j
//     for j: bytes[j][part][digit] = dword i to all lanes of quarter i
//   starts = -zero * the sum of a lane's bytes, or of what its digits say                 emit_digits
//            (joined runs: jit/qk_fours.h)                                                store_joined
class QueryFours : public QueryEmitter {
public:
    explicit QueryFours(const RowKey& key) : QueryEmitter(*key.target), form_(key) {
        begin_row(4 * form_.chunks * form_.parts);
        if (form_.joins_runs) emit_unit();
        form_.digits == 1 ? take_share() : take_inverse(largest());
        for (int j = 0; j < 4; ++j) vmovups(spread_[size_t(j)], constant(spread_order(j)));
        vmovups(zeros_, splat_bits(uint32_t(form_.zero) * 0x01010101));
        const int last = form_.chunks - 1, alike = form_.has_half ? last : form_.chunks;
        if (alike > 0) times(alike, "chunks", [&] { emit_chunk(0); });
        if (form_.has_half) emit_chunk(last);
        end();
    }

private:
    float largest() const { return float(form_.largest); }
    int elements() const { return 4 * lanes() * form_.parts; }  // of a chunk

    static std::vector<uint32_t> spread_order(int j) {
        std::vector<uint32_t> order;
        for (uint32_t lane = 0; lane < 16; ++lane) order.push_back(uint32_t(4 * j) + lane / 4);
        return order;
    }

    void emit_unit() {
        take_units(largest(), kLargestFactor);
        Temp unit(*this, "unit");
        load_unit(unit, largest(), kLargestFactor);
        vmovups(ptr[factors_ + 2 * form_.chunks * vec_bytes()], *unit);
    }

    using Quarters = std::vector<std::vector<Vec>>;  // [parts][4]

    // Of which all but a half chunk, the last, are alike.
    void emit_chunk(int chunk) {
        stage("chunk");
        Quarters x;
        for (int part = 0; part < form_.parts; ++part) x.push_back(vecs("x", 4));
        for (int i = 0; i < 4; ++i) {
            for (int part = 0; part < form_.parts; ++part)
                load_number_of(x[size_t(part)][size_t(i)], chunk, part, i);
            round(x, i);
        }
        emit_digits(x);
        for (const std::vector<Vec>& part : x) free(part);
        add(row_, elements() * 4);
        add(bytes_, 4 * form_.parts * form_.digits * vec_bytes());
        add(starts_, form_.starts() / form_.chunks * vec_bytes());
        if (form_.digits == 1) add(factors_, (form_.joins_runs ? 2 : form_.runs()) * vec_bytes());
    }

    // Elements of a quarter of the bytes.
    void load_number_of(const Vec& v, int chunk, int part, int quarter) {
        const int first = 16 * quarter * form_.parts;
        const int element = form_.order[size_t(((chunk * form_.parts + part) * lanes() + 4 * quarter) * 4)];
        const RegExp at = row_ + (element < 0 ? first : element - chunk * elements()) * 4;  // padding is 0
        const bool follow_each_other = form_.order[1] == 1;  // else every second
        follow_each_other ? vmovups(v, ptr[at]) : load_every_second(v, at);
    }

    void round(const Quarters& x, int quarter) {
        Temp inverse(*this, "inverse");
        if (form_.digits == 1) choose_factors(x, quarter, inverse);
        for (const std::vector<Vec>& part : x) {
            const Vec& v = part[size_t(quarter)];
            vmulps(v, v, form_.digits == 1 ? *inverse : top_);
            vcvtps2dq(v, v);
        }
    }

    void choose_factors(const Quarters& x, int quarter, const Vec& inverse) {
        Temp top(*this, "top");
        vmovaps(top, top_);
        for (const std::vector<Vec>& part : x) keep_larger(top, part[size_t(quarter)]);
        keep_largest(top, 4 * form_.run);
        if (form_.joins_runs) return choose_words(top, quarter, inverse);
        choose_factor(top, inverse, largest());
        for (int run = 0; run < form_.runs(); ++run)
            vextractf32x4(ptr[factors_ + run * vec_bytes() + 16 * quarter], Xbyak::Zmm((*top).getIdx()),
                          uint8_t(run * form_.run));
    }

    // The next whole number; lanes of run j then have that of j and that of the next.
    void choose_words(const Vec& top, int quarter, const Vec& inverse) {
        Temp next(*this, "next run's");
        choose_units(top, inverse);
        swap_lanes(next, top, 4);
        join_words(top, next, top);
        for (int pair = 0; pair < 2; ++pair)
            vextractf32x4(ptr[factors_ + pair * vec_bytes() + 16 * quarter], Xbyak::Zmm(top.getIdx()),
                          uint8_t(2 * pair));
    }

    void emit_digits(const Quarters& x) {
        if (form_.joins_runs) return store_joined(x);
        const std::vector<Vec> sums = vecs("sum", form_.runs());  // of a chain, the lower digits first
        for (int digit = form_.digits - 1; digit >= 0; --digit) {
            const std::vector<Vec> of_digit = vecs("sum of digit", form_.runs());
            for (const Vec& v : of_digit) zero(v);
            for (int part = 0; part < form_.parts; ++part) emit_digit(x[size_t(part)], part, digit, of_digit);
            for (int run = 0; run < form_.runs(); ++run)
                chain(digit, run, of_digit[size_t(run)], sums[size_t(run)]);
            free(of_digit);
        }
        free(sums);
    }

    void store_joined(const Quarters& x) {
        const std::vector<Vec> sums = vecs("sum", form_.runs());
        for (size_t j = 0; j < 4; ++j) j % 2 == 0 ? zero(sums[j]) : vmovups(sums[j], splat_bits(kSpanZero));
        for (int part = 0; part < form_.parts; ++part) emit_digit(x[size_t(part)], part, 0, sums);
        Temp total(*this, "total"), start(*this, "start");
        zero(total);
        for (size_t pair = 0; pair < 2; ++pair) {
            join_words(sums[2 * pair], sums[2 * pair + 1], sums[2 * pair]);
            dot_words(total, sums[2 * pair], ptr[factors_ + pair * size_t(vec_bytes())]);
        }
        zero(start);
        vpsubd(start, start, total);
        vmovups(ptr[starts_], *start);
        free(sums);
    }

    // Stores and sums up a digit of x, of which the higher ones are left.
    void emit_digit(const std::vector<Vec>& x, int part, int digit, const std::vector<Vec>& sums) {
        const std::vector<Vec> low = vecs("digit", 4);
        for (int i = 0; i < 4; ++i) {
            const Vec &v = x[size_t(i)], &d = low[size_t(i)];
            if (digit == 0) {
                vmovaps(d, v);
                continue;
            }
            bit_and(d, v, splat_bits(0xff));
            vpaddd(v, v, splat_bits(0x80));
            vpsrad(v, v, 8);
        }
        pack(low, digit == 0);
        for (int j = 0; j < 4; ++j) {
            const Vec& spread = low[1];  // of no more use
            vpermd(Xbyak::Zmm(spread.getIdx()), Xbyak::Zmm(spread_[size_t(j)].getIdx()),
                   Xbyak::Zmm(low[0].getIdx()));
            vmovups(ptr[bytes_ + ((j * form_.parts + part) * form_.digits + digit) * vec_bytes()], spread);
            dot_bytes(sums[size_t(j / form_.run)], zeros_, spread);
        }
        free(low);
    }

    // The bytes of v[0..3] in v[0]: dword i of 128 bits j is from 128 bits j of v[i].
    void pack(const std::vector<Vec>& v, bool is_signed) {
        for (int i = 0; i < 4; i += 2) {
            const Vec &a = v[size_t(i)], &b = v[size_t(i + 1)];
            is_signed ? vpackssdw(a, a, b) : vpackusdw(a, a, b);
        }
        is_signed ? vpacksswb(v[0], v[0], v[2]) : vpackuswb(v[0], v[0], v[2]);
    }

    // Adds a digit's sum to that of its chain, whose start is stored when it is whole.
    void chain(int digit, int run, const Vec& of_digit, const Vec& sum) {
        const bool first = digit == form_.digits - 1, alone = form_.digits == 3 && digit == 0;
        if (!first && !alone) {
            vpslld(of_digit, of_digit, 8);
            vpaddd(sum, sum, of_digit);
        } else if (first) {
            vmovaps(sum, of_digit);
        }
        const bool whole = digit == 0 || (form_.digits == 3 && digit == 1);
        if (!whole) return;
        Temp start(*this, "start");
        zero(start);
        vpsubd(start, start, alone ? of_digit : sum);
        const int at = run * form_.chains() + (form_.chains() == 2 && !alone ? 1 : 0);
        vmovups(ptr[starts_ + at * vec_bytes()], *start);
    }

    const FoursForm form_;
    const Vec zeros_ = vec("zeros");
    const std::vector<Vec> spread_ = vecs("spread", 4);
};

}  // namespace

Status generate_query_fours(const RowKey& keys, std::vector<uint8_t>* code) {
    return QueryFours(keys).finish(code);
}

}  // namespace quire::jit
