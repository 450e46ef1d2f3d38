// What quire.h promises of precisions, and how it is measured: RMS errors of the output against the float64
// attention over the dequantised cache, of the RMS of what is exact, over normal data, and where a few
// channels of the query or of the values are much larger than the others.
#pragma once
#include <vector>

#include "tests/support/run.h"

namespace quire::test {

enum class Data { normal, large_query_channels, large_value_channels };
constexpr Data kData[] = {Data::normal, Data::large_query_channels, Data::large_value_channels};

// queries: of a sequence; 4 query rows a kv head each.
Case usual_case(const quire_format& format, int head_size, int64_t queries);

struct Errors {
    double plain = 0;           // of a plain float32 attention, whatever kernels do
    std::vector<double> of[3];  // [precision][target]
    double of_plain(size_t target) const { return of[QUIRE_PRECISION_HIGHEST][target] / plain; }
};
// The case's own precision is of no account.
Errors errors_of(Case c, Data data, const std::vector<const Target*>& on,
                 const std::vector<quire_precision>& precisions);

// What checks have seen.
struct Seen {
    // Cases that ran at a lower precision: float32's error is below 3e-6, that of `high` below 3e-4.
    int high = 0, medium = 0;
    // The largest errors, by Data, which quire.h states as seen; at `highest` in units of a plain float32
    // attention's.
    double largest[3][3] = {};  // [precision][data]

    void add(Data data, const double (&errors)[3]);
    void print() const;
};

// All that is promised, on these targets.
void check_promises(const Case& c, const std::vector<const Target*>& on, Seen* seen);

}  // namespace quire::test
