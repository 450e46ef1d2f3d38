// The query of decode as kernels take it (jit/args.h: QkArgs), made here in another way than in src/.
#pragma once
#include <vector>

#include "jit/kernel_key.h"
#include "jit/kernels.h"
#include "tests/support/guarded.h"

namespace quire::test {

struct RoundedQuery {
    GuardedBuffer query, starts, factors;  // as QkArgs; of float products the first alone
};

// Of `rows` rows of key.padded() floats; bytes change them to what they stand for.
RoundedQuery rounded_query(const jit::RowKey& key, int rows, float* query, Flush flush);
// Of keys in blocks of tokens that are taken as bytes (jit/token_qk_bytes.h).
RoundedQuery rounded_token_query(const jit::RowKey& key, int rows, float* query, Flush flush);

// The kernels of such keys, of which query_row rounds a row as the above does.
jit::DecodeKernels query_kernels(const jit::RowKey& keys);

// What the kernels of such keys write that round rows to tiles of AMX, one row after the other as
// src/attend_query_rows.cc has them rounded: arrays of exactly that length, filled before.
struct TileQuery {
    TileQuery(const jit::RowKey& keys, int row_floats, int query_bytes,
              const std::vector<std::vector<float>>& rows, Flush flush);
    // Numbers out of digits and factors, beside those that were made in another way.
    void check(const std::vector<int>& numbers, const std::vector<int>& others,
               const RoundedQuery& wanted) const;

    GuardedBuffer bytes, factors;
};

// Some of its numbers are large, so that rounding has to keep up with both.
std::vector<float> uneven_row(int dim, uint64_t seed);
// So many of them, each with `stride` floats.
std::vector<float> padded_rows(const std::vector<std::vector<float>>& rows, int stride);

}  // namespace quire::test
