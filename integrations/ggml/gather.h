// Several sequences decoding in one cache: their cells lie between each other, and the mask tells each token
// its own. Then every token is a sequence of its own whose keys are the cells that it sees, one by one.
#pragma once
#include <vector>

#include "problem.h"

namespace quire_ggml {

// Memory of one call, kept from call to call.
struct Gather {
    std::vector<int64_t> cells;    // [tokens, most]: cells that a token sees, in order; the rest is not read
    std::vector<int64_t> keys;     // [tokens + 1]: kvstarts, how many they are, summed up
    std::vector<int64_t> queries;  // [tokens + 1]: seqstarts
    int64_t most = 0;
};

// False where tokens see mostly the same cells, which are then better read once for all of them, and where
// the mask has numbers that are added.
bool gather_cells(const Problem& problem, Gather* gather);

}  // namespace quire_ggml
