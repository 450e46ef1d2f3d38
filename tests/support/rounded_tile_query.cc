#include "tests/support/rounded_tile_query.h"

#include <algorithm>
#include <cmath>

#include "jit/byte_loader.h"
#include "jit/word_loader.h"
#include "src/half.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

class Rounding {
public:
    Rounding(const jit::RowKey& key, float* columns, int lanes)
        : key_(key), columns_(columns), count_(lanes) {}

    RoundedTileQuery all() {
        for (int r = 0; r < count_; ++r) {
            if (key_.bfloats()) round_to_bfloats(r);
            if (key_.words()) round_to_words(r);
            if (key_.bytes()) round_to_one_byte(r);
            if (key_.query_bytes() == 2) round_to_two_bytes(r);
            if (key_.query_bytes() == 3) round_to_three_bytes(r);
        }
        return query_;
    }

private:
    float& column(int d, int r) { return columns_[d * count_ + r]; }
    // Row `row` of the query, lane r; of its bytes and halves number `i`.
    uint32_t& lane(int row, int r) {
        query_.lanes.resize(std::max(query_.lanes.size(), size_t((row + 1) * count_)));
        return query_.lanes[size_t(row * count_ + r)];
    }
    void set_byte(int row, int r, int i, int byte) { lane(row, r) |= uint32_t(uint8_t(byte)) << i * 8; }
    void set_half(int row, int r, int i, int half) { lane(row, r) |= uint32_t(uint16_t(half)) << i * 16; }

    // The factor that makes the row's largest element `largest`.
    float add_factor(int r, float largest) {
        float top = 0;
        for (int d = 0; d < key_.dim; ++d) top = std::max(top, std::fabs(column(d, r)));
        query_.factors.push_back(top / largest);
        return top / largest;
    }

    void round_to_bfloats(int r) {
        for (int d = 0; d < key_.dim; ++d) {
            const uint16_t half = float_to_bfloat(column(d, r));
            set_half(d / 2, r, d % 2, half);
            column(d, r) = bfloat_to_float(half);
        }
    }

    void round_to_words(int r) {
        const int swapped[] = {0, 2, 1, 3};
        const float factor = add_factor(r, jit::kLargestWord);
        for (int d = 0; d < key_.dim; ++d) {
            const int at = jit::swaps_middle(key_.format) ? d / 4 * 4 + swapped[d % 4] : d;
            set_half(at / 2, r, at % 2, int(std::lrint(column(d, r) / factor)));
        }
    }

    // A factor for each span.
    void round_to_bytes(int r) {
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const jit::ByteTileForm form(key_.format, 1, *key_.target);
        std::vector<double> zeros(size_t(key_.dim / form.part));
        for (int i = 0; i < key_.dim; ++i) {
            const int part = i / form.part, span = i % form.part / jit::kByteTileSpan;
            const int numbers = key_.dim / 4 + part * form.numbers;
            const float factor = (span % 2 == 0 ? 3.f : -4.f) / 127 / std::sqrt(float(key_.dim));
            float& x = column(order[size_t(i)], r);
            const int byte = std::clamp(int(std::lrint(x / factor)), -127, 127);
            x = float(byte) * factor;
            set_byte(i / 4, r, i % 4, byte);
            if (i % jit::kByteTileSpan == 0) {
                lane(numbers + 1 + 2 * span, r) = float_bits(jit::kByteTileZero);
                lane(numbers + 2 + 2 * span, r) = float_bits(factor);
                zeros[size_t(part)] -= double(jit::kByteTileZero) * double(factor);
            }
            lane(numbers + 1 + 2 * span, r) -= uint32_t(jit::byte_zero(key_.format) * byte);
            lane(numbers, r) = float_bits(float(zeros[size_t(part)]));
        }
    }

    void round_to_one_byte(int r) {
        const jit::ByteTileForm form(key_.format, 1, *key_.target);
        form.joins || form.weighs ? round_to_joined(r)
        : form.shifts             ? round_to_shifted(r)
                                  : round_to_bytes(r);
    }

    // Every shift that there is.
    void round_to_shifted(int r) {
        constexpr int kSpan = jit::kByteTileSpan, kMost = jit::kLargestShift;
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const jit::ByteTileForm form(key_.format, 1, *key_.target);
        std::vector<double> zeros(size_t(key_.dim / form.part));
        for (int i = 0; i < key_.dim; ++i) {
            const int part = i / form.part, pair = i % form.part / (2 * kSpan);
            const int numbers = key_.dim / 4 + part * form.numbers;
            const int shift = (i / (2 * kSpan) + r) % (2 * kMost + 1) - kMost;
            const float larger = 3.f / 127 / std::sqrt(float(key_.dim));
            const float second = shift > 0 ? std::ldexp(larger, -shift) : larger;
            const float unit = i / kSpan % 2 == 0 ? std::ldexp(second, shift) : second;
            float& x = column(order[size_t(i)], r);
            const int byte = std::clamp(int(std::lrint(x / unit)), -127, 127);
            x = float(byte) * unit;
            set_byte(i / 4, r, i % 4, byte);
            lane(numbers + 1 + 2 * pair, r) = uint32_t(shift + kMost);
            lane(numbers + 2 + 2 * pair, r) = float_bits(second);
            zeros[size_t(part)] -= double(jit::byte_zero(key_.format) * byte) * double(unit);
            lane(numbers, r) = float_bits(float(zeros[size_t(part)]));
        }
    }

    // Factors of any size: bytes that are too large for one are cut.
    void round_to_joined(int r) {
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const jit::ByteTileForm form(key_.format, 1, *key_.target);
        const float unit = add_factor(r, 127.f * jit::kLargestFactor);
        for (int i = 0; i < key_.dim; ++i) {
            const int part = i / form.part, span = i % form.part / jit::kByteTileSpan;
            const int start = key_.dim / 4 + part * form.numbers;
            const int factor = jit::kLargestFactor / (1 + (i / jit::kByteTileSpan + r) % 5);
            float& x = column(order[size_t(i)], r);
            const int byte = std::clamp(int(std::lrint(x / (float(factor) * unit))), -127, 127);
            x = float(byte) * float(factor) * unit;
            set_byte(i / 4, r, i % 4, byte);
            if (i % jit::kByteTileSpan == 0) {
                if (form.joins) set_half(start + 1 + span / 2, r, 1 - span % 2, factor);
                if (form.joins && span % 2 == 1) lane(start, r) -= uint32_t(factor * jit::kSpanZero);
                for (int half = 0; form.weighs && half < 2; ++half)
                    set_half(start + 1 + span, r, half, factor);
            }
            lane(start, r) -= uint32_t(factor * jit::byte_zero(key_.format) * byte);
        }
    }

    void round_to_two_bytes(int r) {
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const jit::ByteTileForm form(key_.format, 2, *key_.target);
        const float factor = add_factor(r, float(jit::largest_digits(2)));
        for (int i = 0; i < key_.dim; ++i) {
            const int run = form.part / 4, part = i / form.part, at = part * 2 * run + i % form.part / 4;
            float& x = column(order[size_t(i)], r);
            const int w = int(std::lrint(double(x) / double(factor))), low = int8_t(w);
            x = float(w) * factor;
            set_byte(at, r, i % 4, (w - low) / 256);
            set_byte(at + run, r, i % 4, low);
            lane(key_.dim / 4 * 2 + part * form.numbers, r) -= uint32_t(jit::byte_zero(key_.format) * w);
        }
    }

    void round_to_three_bytes(int r) {
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const jit::ByteTileForm form(key_.format, 3, *key_.target);
        const float factor = add_factor(r, jit::kLargestOfThree);
        for (int i = 0; i < key_.dim; ++i) {
            const int run = form.part / 4, part = i / form.part, at = part * 3 * run + i % form.part / 4;
            float& x = column(order[size_t(i)], r);
            const int w = int(std::lrint(double(x) / double(factor))), low = int8_t(w);
            const int middle = int8_t((w - low) / 256), high = (w - low - 256 * middle) / 65536;
            x = float(w) * factor;
            set_byte(at, r, i % 4, high);
            set_byte(at + run, r, i % 4, middle);
            set_byte(at + 2 * run, r, i % 4, low);
            const auto start = [&](int number) -> uint32_t& {
                return lane(key_.dim / 4 * 3 + part * form.numbers + number, r);
            };
            const int zero = jit::byte_zero(key_.format);
            start(0) -= uint32_t(zero * (form.sums == 1 ? w : high));
            if (form.sums == 2) start(1) -= uint32_t(zero * (256 * middle + low));
        }
    }

    const jit::RowKey key_;
    float* const columns_;
    const int count_;
    RoundedTileQuery query_;
};

}  // namespace

RoundedTileQuery round_tile_query(const jit::RowKey& key, float* columns, int lanes) {
    return Rounding(key, columns, lanes).all();
}

}  // namespace quire::test
