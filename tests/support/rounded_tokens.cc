#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "jit/token_qk_amx.h"
#include "jit/token_qk_bytes.h"
#include "tests/support/rounded_query.h"

namespace quire::test {
namespace {

struct Arrays {
    std::vector<int8_t> bytes;
    std::vector<int32_t> starts;
    std::vector<float> factors;
};

// Where an element's digits are among those of a row: its dword, and the byte of that.
struct Place {
    int dword, byte;
};
Place place_of(const jit::TokenBytesForm& form, int element) {
    if (!form.is_nibbles) return {element / 4, element % 4};
    return {element / 8 * 2 + element % 2, element % 8 / 2};
}

// The highest first; all but that are signed bytes.
std::vector<int> digits_of(int number, int count) {
    std::vector<int> digits;
    for (; count > 1; --count) {
        digits.insert(digits.begin(), int8_t(number & 0xff));
        number = (number - digits.front()) / 256;
    }
    digits.insert(digits.begin(), number);
    return digits;
}

void round_digits(const jit::TokenBytesForm& form, int r, float* row, Arrays* to) {
    float top = 1e-30f;
    for (int d = 0; d < form.dim; ++d) top = std::max(top, std::fabs(row[d]));
    const float factor = top / float(jit::largest_digits(form.digits));
    to->factors[size_t(r)] = factor;
    std::vector<int64_t> sums(size_t(form.starts()), 0);
    for (int d = 0; d < form.dim; ++d) {
        const int number = int(std::lrint(row[d] / factor));
        const std::vector<int> digits = digits_of(number, form.digits);
        const Place place = place_of(form, d);
        for (int i = 0; i < form.digits; ++i)
            to->bytes[size_t(r * form.bytes() + (place.dword * form.digits + i) * 4 + place.byte)] =
                int8_t(digits[size_t(i)]);
        int64_t* const of_run = &sums[size_t(d / form.run * form.chains)];
        const int low = form.chains == 2 ? digits.back() : 0;
        of_run[0] += form.chains == 2 ? (number - low) / 256 : number;
        if (form.chains == 2) of_run[1] += low;
        row[d] = float(number) * factor;
    }
    for (size_t i = 0; i < sums.size(); ++i)
        to->starts[size_t(r * form.starts()) + i] = int32_t(uint32_t(-form.zero * sums[i]));
}

void round_bytes(const jit::TokenBytesForm& form, int r, float* row, Arrays* to) {
    float top = 1e-27f;
    for (int d = 0; d < form.dim; ++d) top = std::max(top, std::fabs(row[d]));
    for (int eight = 0; eight < form.dim; eight += 8) {
        float largest = top / 1024;
        for (int d = eight; d < eight + 8; ++d) largest = std::max(largest, std::fabs(row[d]));
        const float factor = largest / 127;
        int32_t start = 0;
        for (int d = eight; d < eight + 8; ++d) {
            const int number = int(std::lrint(row[d] / factor));
            const Place place = place_of(form, d);
            to->bytes[size_t(r * form.bytes() + place.dword * 4 + place.byte)] = int8_t(number);
            start -= form.zero * number;
            row[d] = float(number) * factor;
        }
        float* const of_eight = &to->factors[size_t(r * form.factors() + eight / 4)];
        std::memcpy(of_eight, &start, sizeof(start));
        of_eight[1] = factor;
    }
}

// Each two elements of a dword by a factor of their own, a whole number of units.
void round_words(const jit::TokenBytesForm& form, int r, float* row, Arrays* to) {
    float top = 1e-30f;
    for (int d = 0; d < form.dim; ++d) top = std::max(top, std::fabs(row[d]));
    const float unit = top * (1 / (float(form.largest) * float(form.largest_factor)));
    to->factors[size_t(r)] = unit;
    for (int d = 0; d < form.dim; ++d) {
        const Place place = place_of(form, d);
        if (place.byte % 2 != 0) continue;
        const int other = d + (form.is_nibbles ? 2 : 1);
        const float larger = std::max({top / 1024, std::fabs(row[d]), std::fabs(row[other])});
        const int64_t factor = std::lrint(larger * (float(form.largest_factor) / top) + .5f);
        int8_t* const at = &to->bytes[size_t(r * form.bytes() + place.dword * 8)];
        const auto word = uint16_t(factor);
        std::memcpy(at + 4 + place.byte, &word, sizeof(word));
        for (const int element : {d, other}) {
            const int number = int(std::lrint(double(row[element]) / (double(unit) * double(factor))));
            at[place.byte + (element == other)] = int8_t(number);
            int32_t& start = to->starts[size_t(r * form.starts() + element / form.run)];
            start = int32_t(uint32_t(int64_t(start) - form.zero * factor * number));
            row[element] = float(number) * float(factor) * unit;
        }
    }
}

// Tiles of AMX: lines of digits, of which each has the elements of a group.
RoundedQuery to_tiles(const jit::RowKey& key, float* query, Flush flush) {
    const jit::TokenKeyAmx form(key);
    std::vector<int8_t> bytes(size_t(form.query_bytes()));
    std::vector<float> factors;
    for (int r = 0; r < form.rows; ++r) {
        float* const row = query + r * key.padded();
        float top = 1e-30f;
        for (int d = 0; d < form.dim; ++d) top = std::max(top, std::fabs(row[d]));
        factors.push_back(top / float(jit::largest_digits(form.digits)));
        std::vector<std::vector<int>> digits;
        for (int d = 0; d < form.dim; ++d) {
            const int number = int(std::lrint(row[d] / factors.back()));
            digits.push_back(digits_of(number, form.digits));
            row[d] = float(number) * factors.back();
        }
        for (int i = 0; i < int(form.sets.size()); ++i)
            for (int chunk = 0; chunk < form.sets[size_t(i)].chunks; ++chunk)
                for (int at = 0; at < jit::TokenKeyAmx::kChunk; ++at) {
                    const jit::TokenKeyAmx::Set& set = form.sets[size_t(i)];
                    const int d = form.element_of(set.chunk + chunk, at), group = d / form.group_size;
                    if (d < 0 || group < set.group || group >= set.group + set.groups) continue;
                    for (int digit = 0; digit < form.digits; ++digit)
                        bytes[size_t(form.query_at(i, chunk) + form.line_at(set, digit, group - set.group) +
                                     r * jit::TokenKeyAmx::kLine + at)] =
                            int8_t(digits[size_t(d)][size_t(digit)]);
                }
    }
    return {GuardedBuffer::of(bytes, flush), {}, GuardedBuffer::of(factors, flush)};
}

}  // namespace

RoundedQuery rounded_token_query(const jit::RowKey& key, int rows, float* query, Flush flush) {
    if (takes_token_key_amx(key)) return to_tiles(key, query, flush);
    const jit::TokenBytesForm form(key);
    Arrays arrays = {std::vector<int8_t>(size_t(rows * form.bytes())),
                     std::vector<int32_t>(size_t(rows * form.starts())),
                     std::vector<float>(size_t(rows * form.factors()), 0.f)};
    for (int r = 0; r < rows; ++r)
        (form.by_eights()    ? round_bytes
         : form.weighs_words ? round_words
                             : round_digits)(form, r, query + r * key.padded(), &arrays);
    return {GuardedBuffer::of(arrays.bytes, flush), GuardedBuffer::of(arrays.starts, flush),
            GuardedBuffer::of(arrays.factors, flush)};
}

}  // namespace quire::test
