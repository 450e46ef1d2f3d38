// The kernel that rounds a query row to the bytes or digits of QK of keys in blocks of tokens: against those
// made in another way, with arrays of exactly the documented length against guard pages and poisoned
// registers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "jit/kernels.h"
#include "jit/token_qk_bytes.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/rounded_query.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

struct TokenQuery {
    TokenQuery(const jit::RowKey& key, const std::vector<float>& row, Flush flush) : form(key) {
        bytes = array(size_t(form.bytes()), int8_t(0x77), flush);
        starts = array(size_t(form.starts()), 0x77777777, flush);
        factors = array(size_t(form.factors()), 7.f, flush);
        const GuardedBuffer from = GuardedBuffer::of(row, flush);
        const jit::DecodeKernels kernels = query_kernels(key);
        poisoned_call<jit::QueryArgs>(
            kernels.query_row,
            {from.as<float>(), bytes.as<int8_t>(), starts.as<int32_t>(), factors.as<float>()}, Entry::nan);
    }

    // Of four elements from 4 * dword on, in the order of the bytes: number `i`, and its factor's word.
    int number(const GuardedBuffer& of, int dword, int i) const {
        int w = 0;
        for (int digit = 0; digit < form.digits; ++digit)
            w = 256 * w + of.as<int8_t>()[(dword * form.dwords() + digit) * 4 + i];
        return w;
    }
    int word(const GuardedBuffer& of, int dword, int i) const {
        uint16_t words[2];
        std::memcpy(words, of.as<int8_t>() + (dword * 2 + 1) * 4, sizeof(words));
        return words[i / 2];
    }
    float unit_of(const GuardedBuffer& of, int dword) const {
        return of.as<float>()[form.by_eights() ? dword / 2 * 2 + 1 : 0];
    }

    // Numbers are those wanted, or beside them where rounding is a matter of how a quotient is taken.
    void check_numbers(const RoundedQuery& wanted) const {
        for (int dword = 0; dword < form.dim / 4; ++dword)
            for (int i = 0; i < 4; ++i) {
                ASSERT_LE(std::abs(number(bytes, dword, i) - number(wanted.query, dword, i)), 1)
                    << "dword " << dword << " byte " << i;
                if (form.weighs_words) {
                    ASSERT_EQ(word(bytes, dword, i), word(wanted.query, dword, i));
                }
                const float unit = unit_of(wanted.factors, dword);
                ASSERT_NEAR(unit_of(factors, dword), unit, unit * 1e-6f);
            }
    }
    // They make the codes of these numbers, not of those wanted, signed.
    void check_starts() const {
        if (form.by_eights()) return check_starts_of_eights();
        for (int run = 0; run < form.runs(); ++run) {
            int64_t sums[2] = {};
            for (int dword = run * form.run / 4; dword < (run + 1) * form.run / 4; ++dword)
                for (int i = 0; i < 4; ++i) {
                    const int64_t w = number(bytes, dword, i);
                    const int low =
                        form.chains == 2 ? bytes.as<int8_t>()[(dword * form.digits + 2) * 4 + i] : 0;
                    sums[0] += form.weighs_words  ? w * word(bytes, dword, i)
                               : form.chains == 2 ? (w - low) / 256
                                                  : w;
                    sums[1] += low;
                }
            for (int chain = 0; chain < form.chains; ++chain)
                ASSERT_EQ(starts.as<int32_t>()[run * form.chains + chain],
                          int32_t(uint32_t(-form.zero * sums[chain])));
        }
    }
    void check_starts_of_eights() const {
        for (int dword = 0; dword < form.dim / 4; dword += 2) {
            int32_t start = 0, got;
            for (int i = 0; i < 8; ++i) start -= form.zero * number(bytes, dword + i / 4, i % 4);
            std::memcpy(&got, factors.as<float>() + dword, sizeof(got));
            ASSERT_EQ(got, start);
        }
    }

    const jit::TokenBytesForm form;
    GuardedBuffer bytes, starts, factors;
};

std::vector<jit::RowKey> keys_of_tokens() {
    std::vector<jit::RowKey> keys;
    for (const Target* target : jit_targets())
        for (const RowShape& shape : token_shapes())
            for (const jit::Products products :
                 {jit::Products::bytes, jit::Products::two_bytes, jit::Products::three_bytes})
                if (can_be(shape, *target, products))
                    keys.push_back({target, shape.format, shape.dim, 1, products});
    return keys;
}

TEST(KernelsQuery, QuickTokens) {
    const std::vector<jit::RowKey> keys = keys_of_tokens();
    ASSERT_FALSE(keys.empty());
    for (const jit::RowKey& key : keys) {
        SCOPED_TRACE(key.name("token query"));
        for (const Flush flush : {Flush::end, Flush::begin}) {
            const std::vector<float> row = uneven_row(key.dim, 1);
            std::vector<float> changed = row;
            changed.resize(size_t(key.padded()), 0.f);
            const TokenQuery got(key, row, flush);
            got.check_numbers(rounded_token_query(key, 1, changed.data(), flush));
            got.check_starts();
        }
    }
}

// A number that is none, or too large, is seen in every factor it has a part in: here in all.
TEST(KernelsQuery, QuickPoisonOfTokens) {
    const std::vector<jit::RowKey> keys = keys_of_tokens();
    ASSERT_FALSE(keys.empty());
    for (const jit::RowKey& key : keys)
        for (const float number : {NAN, -NAN, INFINITY, -INFINITY})
            for (const int at : {0, key.dim / 2, key.dim - 1}) {
                SCOPED_TRACE(key.name("token query"));
                std::vector<float> row = uneven_row(key.dim, 1);
                row[size_t(at)] = number;
                const TokenQuery got(key, row, Flush::end);
                for (int dword = 0; dword < key.dim / 4; ++dword)
                    ASSERT_TRUE(std::isnan(got.unit_of(got.factors, dword))) << number << " at " << at;
            }
}

}  // namespace
}  // namespace quire::test
