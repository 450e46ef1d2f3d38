// What a call must move and compute at least: for QUIRE_VERBOSE and for predictions.
#pragma once
#include "src/copy.h"
#include "src/problem.h"
#include "src/project.h"

namespace quire {

// bytes: of the tensors of numbers that the call reads and writes (not masks, indices), each element once.
// flops: of products, a multiplication and an addition counting as two.
// Floating-point numbers: no sum of a caller's sizes overflows them.
struct Cost {
    double bytes = 0, flops = 0;
    void add(const Cost& other) {
        bytes += other.bytes;
        flops += other.flops;
    }
};

Cost cost_of(const AttentionProblem& problem);
Cost cost_of(const AppendProblem& problem);
Cost cost_of(const ReadProblem& problem);
Cost cost_of(const RowCopy& copy);
Cost cost_of(const Projection& projection);

struct Prediction {
    quire_bound bound = QUIRE_BOUND_UNKNOWN;
    double seconds = 0;
};
// The longer of both times; a limit of 0 is not known, and is not needed for what there is none of.
Prediction predict(const Cost& cost, double bytes_per_second, double flops_per_second);

// Of one position and kv head in the cache: key, value and their scales.
double cache_row_bytes(const CacheSpec& spec);

}  // namespace quire
