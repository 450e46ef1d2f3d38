#include "tests/support/weighted_row.h"

#include <algorithm>
#include <cmath>

#include "jit/weights_bytes.h"
#include "jit/weights_runs.h"

namespace quire::test {

void WeightedRow::add(int first, const std::vector<double>& weights) {
    if (!key_.bytes()) {
        for (size_t i = 0; i < weights.size(); ++i)
            for (size_t d = 0; d < values_.size(); ++d)
                values_[d] += weights[i] * double(rows_.values(first + int(i))[d]);
        return;
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    if (largest == 0) return;
    // Of either sign for themselves, or both together, by their magnitudes.
    for (int group = 0; group < key_.groups(); ++group)
        if (jit::has_value_runs(key_))
            for (const int sign : {1, -1}) add_runs(first, weights, group, sign);
        else if (jit::ValueBytes::has_signs(key_))
            add_bytes(first, weights, largest, group, 0);
        else
            for (const int sign : {1, -1}) add_bytes(first, weights, largest, group, sign);
}

void WeightedRow::add_runs(int first, const std::vector<double>& weights, int group, int sign) {
    constexpr double kLargest = jit::ValueRuns::kLargest;
    const int size = scale_group(key_.format), count = int(weights.size());
    for (int run = 0; run < count; run += jit::ValueRuns::kRun) {
        const int end = std::min(run + jit::ValueRuns::kRun, count);
        const double largest = *std::max_element(weights.begin() + run, weights.begin() + end),
                     top = top_scale(first + run, end - run, group, sign), unit = top * largest / kLargest;
        if (unit == 0) continue;
        double most = 0;
        for (int i = run; i < end; ++i) {
            const double scale = scale_of(first + i, group, sign);
            if (scale == 0) continue;
            const double p = std::nearbyint(weights[size_t(i)] / largest * double(jit::kWordOfOne)),
                         s = std::nearbyint(scale / top * double(jit::kScaleOfOne));
            const double weight = std::floor((p * s + 16384) / 32768) * unit * sign;
            for (int d = group * size; d < (group + 1) * size; ++d) {
                const double code = double(rows_.values(first + i)[size_t(d)]) / (sign * scale);
                values_[size_t(d)] += weight * code;
                most = std::max(most, std::abs(code));
            }
        }
        for (int d = group * size; d < (group + 1) * size; ++d) unsure_[size_t(d)] += 2 * unit * most;
    }
}

// Of a sign, or the magnitude.
double WeightedRow::scale_of(int key, int group, int sign) const {
    const double scale = double(rows_.scale(key, group));
    return sign == 0 ? std::abs(scale) : std::max(0., sign * scale);
}

double WeightedRow::top_scale(int first, int count, int group, int sign) const {
    double top = 0;
    for (int i = 0; i < count; ++i) top = std::max(top, scale_of(first + i, group, sign));
    return top;
}

// Of each key: its scales, of the largest ones of their groups.
std::vector<double> WeightedRow::shares_of(int first, int count, int sign) const {
    std::vector<double> shares(size_t(count), 1. / 32);
    for (int group = 0; group < key_.groups(); ++group) {
        const double top = top_scale(first, count, group, sign);
        for (int i = 0; top > 0 && i < count; ++i)
            shares[size_t(i)] = std::max(shares[size_t(i)], scale_of(first + i, group, sign) / top);
    }
    return shares;
}

// The larger sum of two keys whose weights are multiplied together: those next to each other.
double WeightedRow::of_four(const std::vector<double>& weights, const std::vector<double>& shares,
                            int first) const {
    double sums[2] = {};
    for (int i = 0; i < 4 && first + i < int(weights.size()); ++i)
        sums[i / 2] += weights[size_t(first + i)] * shares[size_t(first + i)];
    return std::max(sums[0], sums[1]);
}

void WeightedRow::add_bytes(int first, const std::vector<double>& weights, double largest, int group,
                            int sign) {
    const jit::ByteWeights form = jit::ValueBytes(key_).form;
    const double of_probability = form.run == 4 ? 1024 : 4096,
                 of_scale = 32768 / of_probability * form.most_weight;
    const int size = scale_group(key_.format), count = int(weights.size());
    const double top = top_scale(first, count, group, sign);
    if (top == 0) return;
    const bool by_fours = form.run == 4;
    const std::vector<double> shares = by_fours ? shares_of(first, count, sign) : std::vector<double>();
    for (int run = 0; run < count; run += form.run) {
        const int end = std::min(run + form.run, count);
        const double of_run = by_fours ? of_four(weights, shares, run)
                                       : *std::max_element(weights.begin() + run, weights.begin() + end);
        if (of_run == 0) continue;
        const double exact = of_run / largest * form.most_factor,
                     factor = by_fours ? std::floor(exact) + 1 : std::nearbyint(exact);
        for (int i = run; i < end; ++i) {
            const double scale = scale_of(first + i, group, sign);
            if (scale == 0) continue;
            const double unit = (by_fours ? factor : exact) / form.most_factor * largest;
            const double p = std::nearbyint(weights[size_t(i)] / unit * of_probability),
                         s = std::nearbyint(scale / top * of_scale);
            const double weight = std::floor((std::min(p, 32767.) * s + 16384) / 32768) * factor /
                                  form.most_factor / form.most_weight * top * largest;
            for (int d = group * size; d < (group + 1) * size; ++d)
                values_[size_t(d)] += weight * double(rows_.values(first + i)[size_t(d)]) / scale;
        }
    }
    const double unit = top * largest / form.most_weight;
    for (int d = group * size; d < (group + 1) * size; ++d) unsure_[size_t(d)] += 2 * unit * form.most_code;
}

}  // namespace quire::test
