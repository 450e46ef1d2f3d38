#include "tests/support/accuracy.h"

#include <algorithm>
#include <cmath>

namespace quire::test {
namespace {

// DESIGN section 5: "at most twice those of a plain float32 attention".
constexpr double kFactor = 2;
// A maximum over few elements is mostly luck (one large score makes one row), and with one key a plain
// float32 attention is exact: any one element may be off by a few roundings of the largest value, and the RMS
// by as much as one such element adds. ErrorRatio is the sharp test.
constexpr double kFloor = 0x1p-20;
// What lower precisions may add in any case, of the largest value: enough to see that nothing is mistaken.
// (Of one element of a row that sees a dozen keys, weights of 8 bits and a query of 8 bits over int4
// added 1.1 %.) What they promise on normal data is in numerics_precision.cc.
double added_by(quire_precision precision) {
    return precision == QUIRE_PRECISION_HIGHEST ? 0 : precision == QUIRE_PRECISION_HIGH ? 1e-3 : 1.5e-2;
}

struct Error {
    double max = 0, squares = 0, largest = 0;  // largest: magnitude of what was wanted
    size_t count = 0, worst = 0;
    void add(double error, double wanted, size_t where) {
        if (error > max) worst = where;
        max = std::max(max, error);
        squares += error * error;
        largest = std::max(largest, std::fabs(wanted));
        ++count;
    }
    double rms() const { return count == 0 ? 0 : std::sqrt(squares / double(count)); }
};

// Half the distance of neighbours of `x` in `type`: what rounding to it may cost.
double half_ulp(quire_type type, double x) {
    if (type == QUIRE_F32) return 0;
    const int digits = type == QUIRE_F16 ? 11 : 8, lowest = type == QUIRE_F16 ? -14 : -126;
    const int exponent = x == 0 ? lowest : std::max(std::ilogb(x), lowest);
    return std::ldexp(0.5, exponent - (digits - 1));
}

// Errors of `got` against `exact`; false where a value that is no number meets a different one. An f16 or
// bf16 result stands for all numbers that round to it: the error is the distance to the nearest of them.
template <typename Got>
bool compare(quire_type type, const std::vector<double>& exact, const std::vector<Got>& got, Error* error) {
    for (size_t i = 0; i < exact.size(); ++i) {
        const double wanted = exact[i], value = double(got[i]);
        if (std::isnan(wanted) && std::isnan(value)) continue;
        if (std::isinf(wanted) && wanted == value) continue;
        if (!std::isfinite(wanted) || !std::isfinite(value)) {
            error->worst = i;
            return false;
        }
        const double rounding = std::max(half_ulp(type, wanted), half_ulp(type, value));
        error->add(std::max(0.0, std::fabs(value - wanted) - rounding), wanted, i);
    }
    return true;
}

// What an lse is held against at least: 1, and at `medium` the size of scores of normal queries and keys.
// Where few keys are seen lse is a score, and may be near 0, while its error is one of scores. (Scale 0.3, D
// 128: one key's score of -0.0065 was off by 0.018, as that of the same numbers rounded to bfloat16 is.)
double least_lse(const Case& c) {
    if (c.precision != QUIRE_PRECISION_MEDIUM || c.scale == 0) return 1;
    return std::max(1.0, std::fabs(double(c.scale)) * std::sqrt(double(c.D)));
}

// `least`: what is added is of the largest value, or of this where that is more.
testing::AssertionResult within(const Case& c, double least, const char* what, quire_type type,
                                const std::vector<double>& exact, const std::vector<float>& plain,
                                const std::vector<float>& got, int row_length) {
    Error error, allowed;
    if (exact.empty()) return testing::AssertionSuccess();
    const bool numbers = compare(type, exact, got, &error);
    compare(QUIRE_F32, exact, plain, &allowed);
    const double added = added_by(c.precision) * std::max(least, allowed.largest);
    const double max = kFactor * allowed.max + kFloor * allowed.largest + added;
    const double rms =
        kFactor * allowed.rms() + kFloor * allowed.largest / std::sqrt(double(exact.size())) + added;
    if (numbers && error.max <= max && error.rms() <= rms) return testing::AssertionSuccess();
    const size_t row = error.worst / size_t(row_length);
    return testing::AssertionFailure()
           << what << " of " << c << "\n  worst at token " << row / size_t(c.H) << ", head "
           << row % size_t(c.H) << ", element " << error.worst % size_t(row_length) << ": got "
           << got[error.worst] << ", exact " << exact[error.worst] << ", plain float " << plain[error.worst]
           << "\n  max error " << error.max << " (allowed " << max << ", plain " << allowed.max << "), RMS "
           << error.rms() << " (allowed " << rms << ", plain " << allowed.rms() << ")";
}

}  // namespace

Expected expect(const Tensors& tensors) {
    return {plain_attention<double>(tensors), plain_attention<float>(tensors)};
}

testing::AssertionResult accurate(const Case& c, const Expected& expected, const Outcome& got) {
    if (got.output.size() != expected.exact.output.size())
        return testing::AssertionFailure() << "not run: " << c;
    const testing::AssertionResult output =
        within(c, 1, "output", c.type, expected.exact.output, expected.plain.output, got.output, c.Dv);
    if (!output || !c.lse) return output;
    return within(c, least_lse(c), "lse", QUIRE_F32, expected.exact.lse, expected.plain.lse, got.lse, 1);
}

void ErrorRatio::add(const Case& c, const Expected& expected, const Outcome& got) {
    Error error, plain;
    if (c.type != QUIRE_F32) return;
    const bool numbers = compare(c.type, expected.exact.output, got.output, &error);
    EXPECT_TRUE(numbers) << "NaN or Inf in the wrong place: " << c;
    compare(c.type, expected.exact.output, expected.plain.output, &plain);
    if (plain.largest == 0) return;
    // Where plain float32 is exact, half a rounding of the result is still allowed.
    constexpr double kRounding = 0x1p-26;
    got_ += error.squares / (plain.largest * plain.largest);
    plain_ += plain.squares / (plain.largest * plain.largest) + double(plain.count) * kRounding * kRounding;
}

double ErrorRatio::value() const { return plain_ == 0 ? 0 : std::sqrt(got_ / plain_); }

}  // namespace quire::test
