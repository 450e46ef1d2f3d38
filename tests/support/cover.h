// Cases that cover pairs of choices: each factor has a list of values, and cases are drawn until all pairs
// that can occur (or as many as `count` cases hold) have occurred.
#pragma once
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "tests/support/case.h"
#include "tests/support/random.h"

namespace quire::test {

class Cover {
public:
    explicit Cover(uint64_t seed) : random_(seed) {}

    // How value `choice` of `values` changes a case.
    void factor(int values, std::function<void(Case*, int choice)> apply) {
        factors_.push_back({values, std::move(apply)});
    }
    // Factors are applied in the order given, then `valid` decides whether the result can be used.
    std::vector<Case> cases(int count, const Case& base, const std::function<bool(Case*)>& valid);

private:
    struct Factor {
        int values;
        std::function<void(Case*, int)> apply;
    };
    using Pair = std::tuple<size_t, int, size_t, int>;

    std::vector<int> draw();
    int uncovered(const std::vector<int>& choices) const;
    void mark(const std::vector<int>& choices);

    Random random_;
    std::vector<Factor> factors_;
    std::set<Pair> covered_;
};

}  // namespace quire::test
