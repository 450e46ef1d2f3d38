#include "tests/support/weighted_row.h"

#include <algorithm>
#include <cmath>

#include "jit/weights_bytes.h"

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
        if (jit::ValueBytes::has_signs(key_))
            add_bytes(first, weights, largest, group, 0);
        else
            for (const int sign : {1, -1}) add_bytes(first, weights, largest, group, sign);
}

void WeightedRow::add_bytes(int first, const std::vector<double>& weights, double largest, int group,
                            int sign) {
    constexpr int kRun = jit::ValueBytes::kRun;
    constexpr double kOfProbability = 4096, kOfScale = 2040;  // 255 * 2^15 together
    const int size = scale_group(key_.format), count = int(weights.size());
    const auto scale = [&](int i) {
        const double s = double(rows_.scale(first + i, group));
        return sign == 0 ? std::abs(s) : std::max(0., sign * s);
    };
    double top = 0;
    for (int i = 0; i < count; ++i) top = std::max(top, scale(i));
    if (top == 0) return;
    for (int run = 0; run < count; run += kRun) {
        const auto begin = weights.begin() + run, end = weights.begin() + std::min(run + kRun, count);
        const double of_run = *std::max_element(begin, end) / largest;
        if (of_run == 0) continue;
        const double factor = std::nearbyint(of_run * jit::ValueBytes::kMostFactor) /
                              jit::ValueBytes::kMostFactor / jit::ValueBytes::kMostWeight * top * largest;
        for (int i = run; i < run + int(end - begin); ++i) {
            const double p = std::nearbyint(weights[size_t(i)] / largest / of_run * kOfProbability),
                         s = std::nearbyint(scale(i) / top * kOfScale);
            const double weight = std::floor((p * s + 16384) / 32768);
            if (scale(i) == 0) continue;
            for (int d = group * size; d < (group + 1) * size; ++d)
                values_[size_t(d)] += weight * factor * double(rows_.values(first + i)[size_t(d)]) / scale(i);
        }
    }
    const double unit = top * largest / jit::ValueBytes::kMostWeight;
    for (int d = group * size; d < (group + 1) * size; ++d)
        unsure_[size_t(d)] += 2 * unit * jit::ValueBytes::kMostCode;
}

}  // namespace quire::test
