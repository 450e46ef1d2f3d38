// The memory of a paged cache as decode has to read it: what its order costs beside a plain read.
#pragma once
#include <cstddef>
#include <vector>

#include "bench/cache.h"

namespace bench {

struct Piece {
    const char* at;
    size_t bytes;
};

// What lies side by side of the keys that a layer's queries see, of their values and of scales, in the order
// in which decode takes them: block by block of 128 keys, of all sequences head by head where heads lie
// apart; where a page holds all heads by turns of some pages each; where a row does, of all heads together.
std::vector<Piece> pieces_of(const PagedCache& cache, const Workload& workload, int64_t layer);

// Bytes a second of threads that do nothing but ask for the lines of their share, in that order, and load
// each once.
double read_pieces_per_s(int threads, const std::vector<Piece>& pieces);

}  // namespace bench
