#include "tests/support/rounded_query.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "jit/byte_loader.h"
#include "jit/qk.h"
#include "jit/qk_amx.h"
#include "jit/qk_fours.h"
#include "src/token_blocks.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/random.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

RoundedQuery to_floats(const jit::RowKey& key, int rows, const float* query, Flush flush) {
    std::vector<float> numbers(query, query + rows * key.padded());
    for (float& number : numbers) number *= jit::query_unit(key);
    return {GuardedBuffer::of(numbers, flush), {}, {}};
}

// The words that stand for the query: x = word * factor, in the loader's order.
RoundedQuery to_words(const jit::RowKey& key, int rows, const float* query, Flush flush) {
    const std::vector<int> order = jit::query_word_order(key);
    std::vector<int16_t> words;
    std::vector<float> factors;
    for (int r = 0; r < rows; ++r) {
        const float* row = query + r * key.padded();
        float top = 0;
        for (int d = 0; d < key.dim; ++d) top = std::max(top, std::fabs(row[d]));
        for (int d : order) words.push_back(d < 0 ? int16_t(0) : int16_t(std::lrint(row[d] / top * 32767)));
        factors.push_back(top / 32767);
    }
    factors.resize(factors.size() + 3, NAN);  // room that may be read
    return {GuardedBuffer::of(words, flush), {}, GuardedBuffer::of(factors, flush)};
}

// Fours: words of one factor a row, in two bytes; or bytes with one for each run of a quarter of the lanes,
// which stand for it from here on. Every dword stands four times, for four keys.
RoundedQuery to_fours(const jit::RowKey& key, int rows, float* query, Flush flush) {
    const jit::FoursForm form(key);
    const size_t lanes = size_t(form.lanes), sums = size_t(form.sums()) * lanes,
                 chains = size_t(form.chains());
    const int largest = jit::largest_digits(form.digits);
    std::vector<int8_t> bytes(size_t(rows * form.vectors()) * lanes * 4);
    std::vector<int32_t> starts(size_t(rows) * sums * chains, 0);
    std::vector<float> factors(form.digits == 1 ? starts.size() : size_t(rows));
    for (int r = 0; r < rows; ++r) {
        float* row = query + r * key.padded();
        const auto lane_of = [&](size_t i) {  // the first that sums it up
            const size_t chunk = i / (4 * lanes) / size_t(form.parts), four = i / 4 % lanes;
            const size_t run = chunk * size_t(form.runs()) + four % 4 / size_t(form.run);
            return size_t(r) * sums + run * lanes + four / 4 * 4;
        };
        const auto factor_of = [&](size_t i) { return form.digits == 1 ? lane_of(i) : size_t(r); };
        const auto start_of = [&](size_t i, size_t chain) {  // of its lane
            return (lane_of(i) / lanes * chains + chain) * lanes + lane_of(i) % lanes;
        };
        float least = 1e-30f;
        for (int d = 0; d < key.dim; ++d) least = std::max(least, std::fabs(row[d]) / 1024);
        std::vector<float> tops(starts.size(), least);
        for (size_t i = 0; i < form.order.size(); ++i)
            if (form.order[i] >= 0)
                tops[factor_of(i)] = std::max(tops[factor_of(i)], std::fabs(row[form.order[i]]));
        for (size_t i = 0; i < form.order.size(); ++i) {
            const size_t part = i / (4 * lanes), four = i / 4 % lanes;
            const size_t vector = size_t(r * form.vectors()) +
                                  ((part / size_t(form.parts) * 4 + four % 4) * size_t(form.parts) +
                                   part % size_t(form.parts)) *
                                      size_t(form.digits);
            const float factor = tops[factor_of(i)] / float(largest);
            const int word = form.order[i] < 0 ? 0 : int(std::lrint(row[form.order[i]] / factor));
            for (size_t copy = 0; copy < 4; ++copy) {
                const size_t at = (vector * lanes + four / 4 * 4 + copy) * 4 + i % 4;
                int digits = word;
                for (int digit = form.digits - 1; digit > 0; --digit) {
                    const int low = (digits % 256 + 384) % 256 - 128;
                    bytes[at + size_t(digit) * lanes * 4] = int8_t(low);
                    digits = (digits - low) / 256;
                }
                bytes[at] = int8_t(digits);
                const int high = chains == 2 ? digits : 0;  // has a chain of its own
                if (high != 0) starts[start_of(i, 0) + copy] -= form.zero * high;
                starts[start_of(i, chains - 1) + copy] -= form.zero * (word - 65536 * high);
                factors[factor_of(i) + (form.digits == 1 ? copy : 0)] = factor;
            }
            if (form.order[i] >= 0) row[form.order[i]] = float(word) * factor;
        }
    }
    return {GuardedBuffer::of(bytes, flush), GuardedBuffer::of(starts, flush),
            GuardedBuffer::of(factors, flush)};
}

// A query row whose factors are words (FoursForm::joins_runs, weighs_words), dword by dword.
class WordRow {
public:
    WordRow(const jit::FoursForm& form, int dim, float* row)
        : form_(form), row_(row), exact_(row, row + dim) {
        for (int d = 0; d < dim; ++d) top_ = std::max(top_, std::fabs(row[d]));
    }
    float unit() const { return top_ * (1.f / (float(form_.largest) * jit::kLargestFactor)); }

    // Fills in what the kernel takes of dword j in quarter `quarter` of a chunk; returns its part of the
    // start.
    int64_t take(int chunk, int quarter, int j, int8_t* bytes, uint32_t* factors) {
        if (form_.joins_runs) {
            const auto of_all = take_elements(chunk, quarter, j, 0, 4, bytes);
            put(2 * chunk + j / 2, quarter, of_all.first, j % 2 == 0, factors);
            return -of_all.first * ((j % 2 == 1 ? jit::kSpanZero : 0) + form_.zero * of_all.second);
        }
        int64_t start = 0;
        for (int i = 0; i < 4; i += 2) {
            const auto of_two = take_elements(chunk, quarter, j, i, i + 2, bytes);
            put(4 * chunk + j, quarter, of_two.first, i == 2, factors);
            start -= of_two.first * form_.zero * of_two.second;
        }
        return start;
    }

private:
    // Elements begin .. end of each part's dword: their factor, and their numbers' sum.
    std::pair<int64_t, int64_t> take_elements(int chunk, int quarter, int j, int begin, int end,
                                              int8_t* bytes) {
        const auto element = [&](int part, int i) {
            return form_
                .order[size_t((chunk * form_.parts + part) * form_.lanes + 4 * quarter + j) * 4 + size_t(i)];
        };
        float top = std::max(1e-30f, top_ / 1024);
        for (int part = 0; part < form_.parts; ++part)
            for (int i = begin; i < end; ++i)
                if (element(part, i) >= 0) top = std::max(top, std::fabs(exact_[size_t(element(part, i))]));
        const int64_t factor = std::lrint(top * (jit::kLargestFactor / top_) + .5f);
        int64_t sum = 0;
        for (int part = 0; part < form_.parts; ++part)
            for (int i = begin; i < end; ++i) {
                const int d = element(part, i);
                const double exact = d < 0 ? 0 : double(exact_[size_t(d)]);
                const int byte = int(std::lrint(exact / (double(unit()) * double(factor))));
                sum += byte;
                const int vector = (chunk * 4 + j) * form_.parts + part;
                for (int key = 0; key < 4; ++key)
                    bytes[(vector * form_.lanes + 4 * quarter + key) * 4 + i] = int8_t(byte);
                if (d >= 0) row_[d] = float(byte) * float(factor) * unit();
            }
        return {factor, sum};
    }
    void put(int vector, int quarter, int64_t factor, bool above, uint32_t* factors) const {
        for (int key = 0; key < 4; ++key)
            factors[vector * form_.lanes + 4 * quarter + key] |= uint32_t(factor) << (above ? 16 : 0);
    }

    const jit::FoursForm& form_;
    float* const row_;
    const std::vector<float> exact_;  // of half a chunk each element is taken twice
    float top_ = 1e-30f;
};

RoundedQuery to_fours_of_words(const jit::RowKey& key, int rows, float* query, Flush flush) {
    const jit::FoursForm form(key);
    const size_t lanes = size_t(form.lanes), R = size_t(rows);
    const size_t of_bytes = size_t(form.vectors()) * lanes * 4, of_factors = size_t(form.factors()) * lanes;
    std::vector<int8_t> bytes(R * of_bytes);
    std::vector<int32_t> starts(R * size_t(form.starts()) * lanes, 0);
    std::vector<uint32_t> factors(R * of_factors, 0);
    for (size_t r = 0; r < R; ++r) {
        WordRow row(form, key.dim, query + r * size_t(key.padded()));
        const float unit = row.unit();
        for (size_t lane = 0; lane < lanes; ++lane)
            std::memcpy(&factors[(r + 1) * of_factors - lanes + lane], &unit, sizeof unit);
        for (int chunk = 0; chunk < form.chunks; ++chunk)
            for (int quarter = 0; quarter < form.lanes / 4; ++quarter)
                for (int j = 0; j < 4; ++j) {
                    const int64_t start =
                        row.take(chunk, quarter, j, &bytes[r * of_bytes], &factors[r * of_factors]);
                    const int sum = form.joins_runs ? chunk : chunk * form.runs() + j / form.run;
                    for (size_t k = 0; k < 4; ++k)
                        starts[(r * size_t(form.starts()) + size_t(sum)) * lanes + size_t(4 * quarter) + k] +=
                            int32_t(start);
                }
    }
    return {GuardedBuffer::of(bytes, flush), GuardedBuffer::of(starts, flush),
            GuardedBuffer::of(factors, flush)};
}

// Tiles of AMX: words of two digits or three and one factor a row, columns of groups.
RoundedQuery to_amx(const jit::RowKey& key, int rows, float* query, Flush flush) {
    const jit::KeyAmx form(key);
    const int largest = jit::largest_digits(form.digits),
              codes = form.parts == 2 && key.scales_tiles() ? 16 : 1;
    std::vector<int8_t> bytes(size_t(form.query_bytes()));
    std::vector<float> factors;
    for (int r = 0; r < rows; ++r) {
        float* row = query + r * key.padded();
        float top = 1e-30f;
        for (int d = 0; d < key.dim; ++d) top = std::max(top, std::fabs(row[d]));
        const float factor = top / float(largest);
        factors.push_back(factor / float(codes));
        for (int d = 0; d < key.dim; ++d) {
            const int word = int(std::lrint(row[d] / factor)), part = d % form.parts, at = d / form.parts;
            row[d] = float(word) * factor;
            int digit[3] = {};
            for (int i = form.digits - 1, left = word; i >= 0; --i) {
                digit[i] = i > 0 ? (left % 256 + 384) % 256 - 128 : left;
                left = (left - digit[i]) / 256;
            }
            for (int plane = 0; plane < form.planes(); ++plane)
                for (int i = 0; i < int(form.steps.size()); ++i) {
                    const auto [set, of] = form.steps[size_t(i)];
                    const jit::KeyAmx::Chunk& chunk = form.chunks[size_t(of)];
                    for (int byte = 0; byte < chunk.bytes; ++byte) {
                        if (form.part_of(chunk, byte) != part || form.at_of(chunk, byte) != at) continue;
                        for (const auto& [column, of_plane] : form.columns_of(set, at / form.group_bytes))
                            bytes[size_t(form.tile_at(plane, i) + byte / 4 * form.lane_bytes() +
                                         (r * form.together + column) * 4 + byte % 4)] =
                                int8_t(digit[plane + of_plane]);
                    }
                }
        }
    }
    return {GuardedBuffer::of(bytes, flush), {}, GuardedBuffer::of(factors, flush)};
}

}  // namespace

std::vector<float> uneven_row(int dim, uint64_t seed) {
    Random random(seed, uint64_t(dim));
    std::vector<float> row;
    for (int d = 0; d < dim; ++d) row.push_back(random.normal() * (d % 11 == 3 ? 60.f : 1.f));
    return row;
}

std::vector<float> padded_rows(const std::vector<std::vector<float>>& rows, int stride) {
    std::vector<float> all;
    for (const std::vector<float>& row : rows) {
        all.insert(all.end(), row.begin(), row.end());
        all.resize(all.size() + size_t(stride) - row.size(), 0.f);
    }
    return all;
}

TileQuery::TileQuery(const jit::RowKey& keys, int row_floats, int query_bytes,
                     const std::vector<std::vector<float>>& rows, Flush flush)
    : bytes(array(size_t(query_bytes), int8_t(0x77), flush)), factors(array(rows.size(), 7.f, flush)) {
    const jit::DecodeKernels kernels = query_kernels(keys);
    for (size_t r = 0; r < rows.size(); ++r) {
        std::vector<float> padded = padded_rows({rows[r]}, row_floats);
        padded.push_back(NAN);  // is read, and no more
        const GuardedBuffer from = GuardedBuffer::of(padded, flush),
                            starts = array(kernels.query_sizes.starts, 0x77777777, flush);
        poisoned_call<jit::QueryArgs>(kernels.query_row,
                                      {from.as<float>(), bytes.as<int8_t>() + r * kernels.query_sizes.step,
                                       starts.as<int32_t>(), factors.as<float>() + r},
                                      Entry::nan);
    }
}

void TileQuery::check(const std::vector<int>& numbers, const std::vector<int>& others,
                      const RoundedQuery& wanted) const {
    // Beside it where rounding is a matter of how a quotient is taken.
    for (size_t i = 0; i < numbers.size(); ++i)
        ASSERT_LE(std::abs(numbers[i] - others[i]), 1) << "number " << i;
    for (size_t r = 0; r < factors.size() / sizeof(float); ++r) {
        const float other = wanted.factors.as<float>()[r];
        ASSERT_NEAR(factors.as<float>()[r], other, other * 1e-6f);
    }
}

jit::DecodeKernels query_kernels(const jit::RowKey& keys) {
    jit::RowKey values = keys;
    values.products = jit::Products::floats;
    jit::DecodeKernels kernels;
    const Status made =
        make_decode_kernels(test_code_cache(), keys, values, {}, jit::Placement::adjacent, &kernels);
    EXPECT_TRUE(made.ok()) << made.message();
    return kernels;
}

RoundedQuery rounded_query(const jit::RowKey& key, int rows, float* query, Flush flush) {
    const bool tokens = token_block_info(key.format.type) != nullptr;
    if (tokens && key.products != jit::Products::floats && !key.words())
        return rounded_token_query(key, rows, query, flush);
    if (takes_key_amx(key)) return to_amx(key, rows, query, flush);
    if (takes_fours(key) && jit::FoursForm(key).has_unit()) return to_fours_of_words(key, rows, query, flush);
    if (takes_fours(key)) return to_fours(key, rows, query, flush);
    return key.words() ? to_words(key, rows, query, flush) : to_floats(key, rows, query, flush);
}

}  // namespace quire::test
