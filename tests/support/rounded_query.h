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

// Some of its numbers are large, so that rounding has to keep up with both.
std::vector<float> uneven_row(int dim, uint64_t seed);

}  // namespace quire::test
