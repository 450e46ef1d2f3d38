// Output rows of decode as its kernels make them of exact probabilities: where weights are bytes
// (jit/weights_bytes.h, jit/weights_runs.h), of those.
#pragma once
#include <vector>

#include "jit/kernel_key.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {

class WeightedRow {
public:
    WeightedRow(const jit::RowKey& key, const KernelRows& rows)
        : key_(key), rows_(rows), values_(size_t(key.dim)), unsure_(size_t(key.dim)) {}

    // A block's weights of the rows from `first` on.
    void add(int first, const std::vector<double>& weights);
    double value(int d) const { return values_[size_t(d)]; }
    // What two units of a weight make: the kernel's probabilities are float32, so that some of them are
    // rounded another way.
    double unsure(int d) const { return unsure_[size_t(d)]; }

private:
    // Of the scales that have this sign.
    void add_bytes(int first, const std::vector<double>& weights, double largest, int group, int sign);
    void add_runs(int first, const std::vector<double>& weights, int group, int sign);
    double scale_of(int key, int group, int sign) const;
    double top_scale(int first, int count, int group, int sign) const;
    std::vector<double> shares_of(int first, int count, int sign) const;
    double of_four(const std::vector<double>& weights, const std::vector<double>& shares, int first) const;

    const jit::RowKey key_;
    const KernelRows& rows_;
    std::vector<double> values_, unsure_;
};

}  // namespace quire::test
