// The kernels that bring query rows into the lanes and outputs out of them: rows and columns of exactly as
// many numbers as they are given, registers poisoned.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "jit/byte_loader.h"
#include "jit/kernels.h"
#include "jit/tile_bytes.h"
#include "jit/tile_words.h"
#include "jit/word_loader.h"
#include "src/half.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

constexpr quire_type kTypes[] = {QUIRE_F32, QUIRE_F16, QUIRE_BF16};

jit::PanelKernels kernels_of(const jit::RowKey& key, quire_type type) {
    jit::RowKey value = key;
    value.products = jit::Products::floats;
    jit::PanelKernels kernels;
    EXPECT_TRUE(make_panel_kernels(test_code_cache(), key, value, type, &kernels).ok());
    return kernels;
}

jit::RowKey plain_key(const Target& target, int dim) { return {&target, plain_format(QUIRE_F32), dim, 0}; }

// Numbers that every type holds.
float draw(Random* random) { return float(random->below(255) - 127) / 16; }

void check_rows(const Target& target, quire_type type, int dim, Flush flush) {
    const int lanes = target.lanes(), stride = 2 * lanes;
    const size_t bytes = size_t(dim * type_bits(type) / 8);
    Random random(dim);
    std::vector<GuardedBuffer> rows;
    std::vector<const void*> list;
    for (int r = 0; r < lanes; ++r) {
        rows.emplace_back(bytes, flush);
        for (int d = 0; d < dim; ++d) store_number(type, rows.back().data(), d, draw(&random));
        rows.back().forbid_writes();
        list.push_back(rows.back().data());
    }
    const GuardedBuffer addresses = GuardedBuffer::of(list, flush);
    GuardedBuffer columns(size_t((dim - 1) * stride + lanes) * sizeof(float), flush);
    columns.fill(0x77);
    poisoned_call<jit::TileRowsArgs>(kernels_of(plain_key(target, dim), type).rows,
                                     {addresses.as<const char*>(), columns.as<float>(), stride * 4, .25f},
                                     Entry::nan);
    for (int i = 0; i < int(columns.size() / 4); ++i) {
        const float got = columns.as<float>()[i];
        if (i % stride >= lanes)
            ASSERT_EQ(float_bits(got), 0x77777777u) << "written beside the lanes";
        else
            ASSERT_EQ(got, load_number(type, rows[size_t(i % stride)].data(), i / stride) / 4)
                << target.name << " D" << dim << " " << type_name(type);
    }
}

void check_columns(const Target& target, quire_type type, int dim, Flush flush) {
    const int lanes = target.lanes(), stride = 2 * lanes, odd = dim % lanes;
    Random random(dim);
    std::vector<float> numbers, factors;
    for (int i = 0; i < (dim - 1) * stride + lanes; ++i)
        numbers.push_back(i % stride < lanes ? draw(&random) : NAN);
    for (int r = 0; r < lanes; ++r) factors.push_back(r == 2 ? NAN : 1.f / float(1 << r % 4));
    numbers[size_t((dim - 1) * stride + odd % 2)] = odd < lanes / 2 ? INFINITY : -NAN;
    std::vector<GuardedBuffer> rows;
    std::vector<void*> list;
    for (int r = 0; r < lanes; ++r) {
        rows.emplace_back(size_t(dim * type_bits(type) / 8), flush);
        list.push_back(rows.back().data());
    }
    const GuardedBuffer from = GuardedBuffer::of(numbers, flush), by = GuardedBuffer::of(factors, flush),
                        to = GuardedBuffer::of(list, flush);
    const GuardedBuffer poison = array(size_t(lanes), 7.f, flush);
    poisoned_call<jit::TileColumnsArgs>(
        kernels_of(plain_key(target, dim), type).output,
        {from.as<float>(), stride * 4, by.as<float>(), to.as<char*>(), poison.as<float>()}, Entry::nan);
    for (int r = 0; r < lanes; ++r) {
        const bool special = r == odd % 2 || r == 2;
        EXPECT_TRUE(special ? std::isnan(poison.as<float>()[r]) : poison.as<float>()[r] == 0);
        for (int d = 0; d < dim && !special; ++d)
            ASSERT_EQ(load_number(type, rows[size_t(r)].data(), d),
                      numbers[size_t(d * stride + r)] * factors[size_t(r)])
                << target.name << " D" << dim << " " << type_name(type) << " row " << r << " element " << d;
    }
}

TEST(KernelsPanels, QuickRowsAndColumns) {
    for (const Target* target : jit_targets())
        for (const quire_type type : kTypes)
            for (const int dim : {1, 3, 8, 21, 64, 128})
                for (const Flush flush : {Flush::end, Flush::begin}) {
                    check_rows(*target, type, dim, flush);
                    check_columns(*target, type, dim, flush);
                }
}

// A query in the lanes, rounded: what its numbers say it is.
class RoundedQuery {
public:
    RoundedQuery(const jit::RowKey& key, Flush flush)
        : key_(key),
          lanes_(key.target->lanes()),
          form_(key.format, std::max(1, key.query_bytes()), *key.target) {
        Random random(key.dim);
        for (int i = 0; i < key.dim * lanes_; ++i)
            columns_.push_back(random.normal() * (i % 7 == 0 ? 100.f : 1.f));
        columns_[size_t(poisoned())] = INFINITY;
        columns_[size_t((key.dim - 1) * lanes_ + 1)] = NAN;
        const int rows = key.query_bytes() > 0 ? numbers_at(key.dim / form_.part) : (key.dim + 1) / 2;
        query_ = array<uint32_t>(size_t(((rows - 1) * 2 + 1) * lanes_), 0x77777777, flush);
        const bool of_row = key.words() || form_.digits > 1 || (key.bytes() && (form_.joins || form_.weighs));
        factors_ = array(size_t(of_row ? lanes_ : 0), 0.f, flush);
        const GuardedBuffer columns = GuardedBuffer::of(columns_, flush);
        poisoned_call<jit::TileQueryArgs>(
            kernels_of(key, QUIRE_F32).query,
            {columns.as<float>(), query_.data(), 2 * lanes_ * 4, factors_.as<float>()}, Entry::nan);
    }

    void check() const {
        for (int r = 0; r < lanes_; ++r)
            for (int d = 0; d < key_.dim; ++d)
                key_.bytes()       ? check_of_one_byte(r, d)
                : form_.digits > 1 ? check_digits(r, d)
                                   : check_half(r, d);
        for (int i = 0; i < int(query_.size() / 4); ++i)
            if (i % (2 * lanes_) >= lanes_) {
                ASSERT_EQ(query_.as<uint32_t>()[i], 0x77777777u);
            }
    }

private:
    int poisoned() const { return key_.dim / 2 * lanes_; }  // in row 0
    float column(int r, int d) const { return columns_[size_t(d * lanes_ + r)]; }
    uint32_t lane(int row, int r) const { return query_.as<uint32_t>()[row * 2 * lanes_ + r]; }
    float top(int r, const std::vector<int>& elements) const {
        float most = 0;
        for (int d : elements) {
            if (!std::isfinite(column(r, d))) return NAN;
            most = std::max(most, std::fabs(column(r, d)));
        }
        return most;
    }

    // bfloat16 numbers, or words.
    void check_half(int r, int d) const {
        constexpr int kSwapped[] = {0, 2, 1, 3};
        const int at = key_.words() && jit::swaps_middle(key_.format) ? d / 4 * 4 + kSwapped[d % 4] : d;
        const uint16_t half = uint16_t(lane(at / 2, r) >> at % 2 * 16);
        if (key_.bfloats()) {
            const float wanted = bfloat_to_float(float_to_bfloat(column(r, d)));
            ASSERT_TRUE(std::isnan(wanted) ? std::isnan(bfloat_to_float(half))
                                           : bfloat_to_float(half) == wanted);
            return;
        }
        expect_near(r, d, float(int16_t(half)), factors_.as<float>()[r], top_of_row(r) / jit::kLargestWord);
    }
    float top_of_row(int r) const {
        std::vector<int> all;
        for (int i = 0; i < key_.dim; ++i) all.push_back(i);
        return top(r, all);
    }

    // Where the numbers of a part are.
    int numbers_at(int part) const { return form_.digits * key_.dim / 4 + part * form_.numbers; }

    void check_digits(int r, int at) const {
        const float factor = factors_.as<float>()[r];
        int64_t starts[2] = {};
        for (int i = 0; i < form_.part; ++i) {
            int w = 0;
            const int part = at / form_.part * form_.part, first = part / 4 * form_.digits + i / 4;
            for (int digit = 0; digit < form_.digits; ++digit) {
                const int byte = int8_t(lane(first + digit * form_.part / 4, r) >> i % 4 * 8);
                w = 256 * w + byte;
                const int unit = 1 << 8 * (form_.digits - 1 - digit);
                starts[digit == 0 && form_.sums == 2 ? 0 : form_.sums - 1] -=
                    jit::byte_zero(key_.format) * byte * unit;
            }
            if (i != at % form_.part) continue;
            const int d = jit::byte_tile_order(key_.format, key_.dim)[size_t(at)];
            expect_near(r, d, float(w), factor, top_of_row(r) / float(jit::largest_digits(form_.digits)));
        }
        if (form_.sums == 2) starts[0] /= 65536;
        for (int i = 0; i < form_.sums && !std::isnan(factor); ++i)
            ASSERT_EQ(int32_t(lane(numbers_at(at / form_.part) + i, r)), starts[i]);
    }

    void check_of_one_byte(int r, int at) const {
        form_.joins || form_.weighs ? check_whole_factors(r, at)
        : form_.shifts              ? check_shifted(r, at)
                                    : check_byte(r, at);
    }

    // Two spans, of which the one with the larger element has the unit that this needs, and the other the
    // next power of two of it above its own, down to 2^-kLargestShift.
    void check_shifted(int r, int at) const {
        constexpr int kSpan = jit::kByteTileSpan, kMost = jit::kLargestShift;
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const auto byte = [&](int i) { return int8_t(lane(i / 4, r) >> i % 4 * 8); };
        const int numbers = numbers_at(at / form_.part);
        const auto shift = [&](int pair) { return int32_t(lane(numbers + 1 + 2 * pair, r)); };
        const auto second = [&](int pair) { return bits_float(lane(numbers + 2 + 2 * pair, r)); };
        const auto unit_of = [&](int i) {
            const int pair = i % form_.part / (2 * kSpan), is_first = i / kSpan % 2 == 0;
            return is_first ? std::ldexp(second(pair), shift(pair) - kMost) : second(pair);
        };
        const auto top_of = [&](int first) {
            return top(r, std::vector<int>(order.begin() + first, order.begin() + first + kSpan));
        };
        const int span = at / kSpan * kSpan, other = span ^ kSpan;
        const float larger = top_of(span) > top_of(other) ? top_of(span) : top_of(other);
        if (std::isnan(top_of(span)) || std::isnan(top_of(other))) {
            ASSERT_TRUE(std::isnan(unit_of(at)) && std::isnan(bits_float(lane(numbers, r))));
            return;
        }
        float wanted = larger;
        while (wanted / 2 >= top_of(span) && wanted > larger / (1 << kMost)) wanted /= 2;
        expect_near(r, order[size_t(at)], byte(at), unit_of(at), wanted / 127);
        double zero = 0, roundings = 0;
        for (int i = at / form_.part * form_.part; i < (at / form_.part + 1) * form_.part; ++i) {
            zero -= double(jit::byte_zero(key_.format) * byte(i)) * double(unit_of(i));
            roundings += double(unit_of(i));
        }
        if (!std::isnan(zero)) {
            ASSERT_NEAR(double(bits_float(lane(numbers, r))), zero, roundings / 16);
        }
    }

    void check_byte(int r, int at) const {
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const auto byte = [&](int i) { return int8_t(lane(i / 4, r) >> i % 4 * 8); };
        const int first = at / jit::kByteTileSpan * jit::kByteTileSpan, part = at / form_.part;
        const int numbers = numbers_at(part);
        const int span = at % form_.part / jit::kByteTileSpan;
        const float factor = bits_float(lane(numbers + 2 + 2 * span, r));
        std::vector<int> elements;
        uint32_t start = float_bits(jit::kByteTileZero);
        for (int i = first; i < first + jit::kByteTileSpan; ++i) {
            elements.push_back(order[size_t(i)]);
            start -= uint32_t(jit::byte_zero(key_.format) * byte(i));
        }
        expect_near(r, order[size_t(at)], byte(at), factor, top(r, elements) / 127);
        if (std::isnan(factor)) return;
        ASSERT_EQ(lane(numbers + 1 + 2 * span, r), start);
        double zero = 0, unit = 0;
        for (int i = 0; i < form_.part / jit::kByteTileSpan; ++i) {
            const double each = double(bits_float(lane(numbers + 2 + 2 * i, r)));
            zero -= double(jit::kByteTileZero) * each;
            unit = std::max(unit, std::fabs(each));
        }
        if (!std::isnan(zero)) {
            ASSERT_NEAR(double(bits_float(lane(numbers, r))), zero,
                        form_.part / jit::kByteTileSpan * 2 * unit);
        }
    }

    // Joined spans and weighed ones.
    void check_whole_factors(int r, int at) const {
        const std::vector<int> order = jit::byte_tile_order(key_.format, key_.dim);
        const auto byte = [&](int i) { return int8_t(lane(i / 4, r) >> i % 4 * 8); };
        const int part = at / form_.part, numbers = numbers_at(part);
        const float unit = factors_.as<float>()[r];
        int64_t start = 0, factor = 0;
        for (int i = part * form_.part; i < (part + 1) * form_.part; ++i) {
            const int span = i % form_.part / jit::kByteTileSpan;
            const uint32_t factors = lane(numbers + 1 + (form_.joins ? span / 2 : span), r);
            const int64_t its = factors >> (span % 2 == 0 ? 16 : 0) & 0xffff;
            if (form_.weighs) {
                ASSERT_EQ(factors >> 16, factors & 0xffff);
            }
            if (i / jit::kByteTileSpan == at / jit::kByteTileSpan) factor = its;
            start -= its * jit::byte_zero(key_.format) * byte(i);
            if (form_.joins && i % (2 * jit::kByteTileSpan) == jit::kByteTileSpan)
                start -= its * jit::kSpanZero;
        }
        std::vector<int> elements;
        for (int i = 0; i < jit::kByteTileSpan; ++i)
            elements.push_back(order[size_t(at / jit::kByteTileSpan * jit::kByteTileSpan + i)]);
        const float least = top_of_row(r) / jit::kLargestFactor;
        ASSERT_EQ(std::isnan(unit), std::isnan(top_of_row(r)));
        if (std::isnan(unit)) return;
        ASSERT_EQ(int32_t(lane(numbers, r)), start);
        // The next whole number of units, and of the smallest numbers sixteen.
        const float wanted = std::max(top(r, elements), 16 * least) / 127;
        ASSERT_GE(float(factor) * unit, wanted * .999999f);
        ASSERT_LE(float(factor) * unit, wanted * 1.000001f + least / 127);
        expect_near(r, order[size_t(at)], byte(at), float(factor) * unit, float(factor) * unit);
    }

    static float bits_float(uint32_t bits) {
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }

    // number * factor is the element, rounded in steps of `unit`.
    void expect_near(int r, int d, float number, float factor, float unit) const {
        if (std::isnan(unit)) {
            ASSERT_TRUE(std::isnan(factor));
            return;
        }
        ASSERT_NEAR(std::fabs(factor), unit, unit * 1e-6f);
        const double wanted = double(column(r, d)), roundings = 3 * 0x1p-24 * std::fabs(wanted);
        ASSERT_NEAR(double(number) * double(factor), wanted, double(unit) * .501 + roundings)
            << key_.name("query") << " row " << r;
    }

    const jit::RowKey key_;
    const int lanes_;
    const jit::ByteTileForm form_;
    std::vector<float> columns_;
    GuardedBuffer query_, factors_;
};

TEST(KernelsPanels, QuickRoundedQueries) {
    const RowShape shapes[] = {{quantised(QUIRE_INT8, 32, QUIRE_F16), 160},
                               {quantised(QUIRE_INT4, 16, QUIRE_F32), 144},
                               {quantised(QUIRE_INT8, 24, QUIRE_F32), 72},
                               {quantised(QUIRE_INT4, 160, QUIRE_F16), 160},
                               {quantised(QUIRE_INT8, 8, QUIRE_F16), 8},
                               {plain_format(QUIRE_Q8_0), 96},
                               {plain_format(QUIRE_F16), 1},
                               {plain_format(QUIRE_F16), 35},
                               {plain_format(QUIRE_Q4_0), 160},
                               {plain_format(QUIRE_IQ4_NL), 160},
                               {plain_format(QUIRE_Q5_0), 96}};
    for (const Target* target : jit_targets())
        for (const RowShape& shape : shapes)
            for (const Flush flush : {Flush::end, Flush::begin}) {
                jit::RowKey key{target, shape.format, shape.dim, 0, jit::Products::bytes};
                if (jit::has_tile_key_bytes(key)) RoundedQuery(key, flush).check();
                key.products = jit::Products::two_bytes;
                if (jit::has_tile_key_two_bytes(key)) RoundedQuery(key, flush).check();
                key.products = jit::Products::three_bytes;
                if (jit::has_tile_key_three_bytes(key)) RoundedQuery(key, flush).check();
                key.products = jit::Products::words;
                if (jit::has_tile_key_words(key)) RoundedQuery(key, flush).check();
                key.products = jit::Products::bfloats;
                if (target->bf16) RoundedQuery(key, flush).check();
            }
}

}  // namespace
}  // namespace quire::test
