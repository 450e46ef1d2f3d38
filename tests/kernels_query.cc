// The kernel that rounds a query row to the digits of QK in fours: against digits made in another way, with
// arrays of exactly the documented length against guard pages and poisoned registers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "jit/byte_loader.h"
#include "jit/kernels.h"
#include "jit/query_fours.h"
#include "src/attend.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/rounded_query.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

struct Fours {
    Fours(const jit::RowKey& key, const std::vector<float>& row, Flush flush) : form(key) {
        const size_t lanes = size_t(form.lanes);
        bytes = array(size_t(form.vectors()) * lanes * 4, int8_t(0x77), flush);
        starts = array(size_t(form.starts()) * lanes, 0x77777777, flush);
        factors = array(form.digits == 1 ? size_t(form.factors()) * lanes : 1, 7.f, flush);
        std::vector<float> padded = row;
        padded.resize(form.order.size(), 0.f);
        padded.push_back(NAN);  // is read, and no more
        const GuardedBuffer from = GuardedBuffer::of(padded, flush);
        if (!has_query_fours(key)) {
            query_to_fours(form, from.as<float>(), key.dim,
                           {bytes.as<int8_t>(), starts.as<int32_t>(), factors.as<float>()});
            return;
        }
        const jit::DecodeKernels kernels = query_kernels(key);
        poisoned_call<jit::QueryArgs>(
            kernels.query_row,
            {from.as<float>(), bytes.as<int8_t>(), starts.as<int32_t>(), factors.as<float>()}, Entry::nan);
    }

    // Byte i of lane `lane` of the query's dword `j` of a part, from these bytes or others laid out like
    // them.
    int number(const GuardedBuffer& of, int vector, int lane, int i) const {
        int w = 0;
        for (int digit = 0; digit < form.digits; ++digit)
            w = 256 * w + of.as<int8_t>()[((vector + digit) * form.lanes + lane) * 4 + i];
        return w;
    }
    int high(int vector, int lane, int i) const {
        return form.digits == 3 ? bytes.as<int8_t>()[(vector * form.lanes + lane) * 4 + i] : 0;
    }

    // Numbers are those wanted, or beside them where rounding is a matter of how a quotient is taken.
    void check_numbers(const RoundedQuery& wanted) const {
        for (int vector = 0; vector < form.vectors(); vector += form.digits)
            for (int lane = 0; lane < form.lanes; ++lane)
                for (int i = 0; i < 4; ++i)
                    ASSERT_LE(
                        std::abs(number(bytes, vector, lane, i) - number(wanted.query, vector, lane, i)), 1)
                        << "vector " << vector << " lane " << lane << " byte " << i;
    }
    void check_starts() const {
        if (form.joins_runs) return check_joined_starts();
        if (form.weighs_words) return check_word_starts();
        for (int sum = 0; sum < form.sums(); ++sum)
            for (int lane = 0; lane < form.lanes; ++lane) {
                int64_t low = 0, high_sum = 0;
                const int of_run = form.run * form.parts * form.digits;
                for (int vector = sum * of_run; vector < (sum + 1) * of_run; vector += form.digits)
                    for (int i = 0; i < 4; ++i) {
                        low += number(bytes, vector, lane, i) - 65536 * high(vector, lane, i);
                        high_sum += high(vector, lane, i);
                    }
                const int32_t* const at = starts.as<int32_t>() + sum * form.chains() * form.lanes + lane;
                ASSERT_EQ(at[(form.chains() - 1) * form.lanes], -form.zero * low);
                if (form.chains() == 2) {
                    ASSERT_EQ(at[0], -form.zero * high_sum);
                }
            }
    }
    // The factor of run j, of the words of lane `lane`.
    int factor(int chunk, int j, int lane) const {
        const uint32_t words = factors.as<uint32_t>()[(2 * chunk + j / 2) * form.lanes + lane];
        return int(words >> (j % 2 == 0 ? 16 : 0) & 0xffff);
    }
    void check_joined_starts() const {
        for (int chunk = 0; chunk < form.chunks; ++chunk)
            for (int lane = 0; lane < form.lanes; ++lane) {
                int64_t start = 0;
                for (int j = 0; j < 4; ++j) {
                    int64_t sum = 0;
                    for (int part = 0; part < form.parts; ++part)
                        for (int i = 0; i < 4; ++i)
                            sum += number(bytes, (4 * chunk + j) * form.parts + part, lane, i);
                    start -= factor(chunk, j, lane) * ((j % 2 == 1 ? jit::kSpanZero : 0) + form.zero * sum);
                }
                ASSERT_EQ(starts.as<int32_t>()[chunk * form.lanes + lane], start);
            }
    }
    void check_word_starts() const {
        for (int sum = 0; sum < form.sums(); ++sum)
            for (int lane = 0; lane < form.lanes; ++lane) {
                int64_t start = 0;
                for (int j = sum * form.run; j < (sum + 1) * form.run; ++j)
                    for (int part = 0; part < form.parts; ++part)
                        for (int i = 0; i < 4; ++i)
                            start -= factors.as<uint16_t>()[(j * form.lanes + lane) * 2 + i / 2] * form.zero *
                                     number(bytes, j * form.parts + part, lane, i);
                ASSERT_EQ(starts.as<int32_t>()[sum * form.lanes + lane], start);
            }
    }
    void check_word_factors(const RoundedQuery& wanted) const {
        const size_t words = size_t(form.words() * form.lanes);
        for (size_t i = 0; i < words; ++i)
            ASSERT_EQ(factors.as<uint32_t>()[i], wanted.factors.as<uint32_t>()[i]);
        ASSERT_NEAR(unit(), wanted.factors.as<float>()[words], unit() * 1e-6f);
    }
    float unit() const { return factors.as<float>()[form.words() * form.lanes]; }

    void check_factors(const RoundedQuery& wanted) const {
        if (form.has_unit()) return check_word_factors(wanted);
        for (size_t i = 0; i < factors.size() / 4; ++i) {
            const float other = wanted.factors.as<float>()[i];
            ASSERT_NEAR(factors.as<float>()[i], other, other * 1e-6f);
        }
    }

    const jit::FoursForm form;
    GuardedBuffer bytes, starts, factors;
};

void check_row(const jit::RowKey& key, Flush flush) {
    SCOPED_TRACE(key.name("query_fours"));
    const std::vector<float> row = uneven_row(key.dim, 1);
    std::vector<float> changed = row;
    changed.resize(size_t(key.padded()), 0.f);
    const RoundedQuery wanted = rounded_query(key, 1, changed.data(), flush);
    const Fours got(key, row, flush);
    got.check_numbers(wanted);
    got.check_starts();
    got.check_factors(wanted);
}

// A number that is none, or too large, is seen in every factor it has a part in: here in all.
void check_poison(const jit::RowKey& key, float number) {
    SCOPED_TRACE(key.name("query_fours"));
    for (const int at : {0, key.dim / 2, key.dim - 1}) {
        std::vector<float> row = uneven_row(key.dim, 2);
        row[size_t(at)] = number;
        const Fours got(key, row, Flush::end);
        ASSERT_TRUE(!got.form.has_unit() || std::isnan(got.unit())) << number << " at " << at;
        for (size_t i = 0; !got.form.has_unit() && i < got.factors.size() / 4; ++i)
            ASSERT_TRUE(std::isnan(got.factors.as<float>()[i])) << number << " at " << at;
    }
}

std::vector<jit::RowKey> keys_in_fours() {
    std::vector<jit::RowKey> keys;
    for (const Target* target : jit_targets())
        for (const RowShape& shape : row_shapes())
            for (const jit::Products products :
                 {jit::Products::bytes, jit::Products::two_bytes, jit::Products::three_bytes})
                if (can_be(shape, *target, products))
                    keys.push_back({target, shape.format, shape.dim, 1, products});
    return keys;
}

TEST(KernelsQuery, QuickFours) {
    const std::vector<jit::RowKey> keys = keys_in_fours();
    ASSERT_FALSE(keys.empty());
    for (const jit::RowKey& key : keys) {
        for (const Flush flush : {Flush::end, Flush::begin}) check_row(key, flush);
        for (const float number : {NAN, -NAN, INFINITY, -INFINITY}) check_poison(key, number);
    }
}

// A row of zeros has no largest number to be rounded by.
TEST(KernelsQuery, QuickZeros) {
    const std::vector<jit::RowKey> keys = keys_in_fours();
    ASSERT_FALSE(keys.empty());
    for (const jit::RowKey& key : keys) {
        const Fours got(key, std::vector<float>(size_t(key.dim), -0.f), Flush::end);
        for (const uint8_t byte : got.bytes.bytes()) ASSERT_EQ(byte, 0);
        got.check_starts();
        for (const uint8_t byte : got.starts.bytes()) ASSERT_TRUE(byte == 0 || got.form.joins_runs);
        ASSERT_TRUE(!got.form.has_unit() || std::isfinite(got.unit()));
        for (size_t i = 0; !got.form.has_unit() && i < got.factors.size() / 4; ++i)
            ASSERT_TRUE(std::isfinite(got.factors.as<float>()[i]));
    }
}

}  // namespace
}  // namespace quire::test
