#include "tests/support/cover.h"

#include <utility>

namespace quire::test {
namespace {

constexpr int kDraws = 40;  // candidates for each case

}  // namespace

std::vector<int> Cover::draw() {
    std::vector<int> choices;
    for (const Factor& factor : factors_) choices.push_back(int(random_.below(factor.values)));
    return choices;
}

int Cover::uncovered(const std::vector<int>& choices) const {
    int count = 0;
    for (size_t a = 0; a < choices.size(); ++a)
        for (size_t b = a + 1; b < choices.size(); ++b)
            count += covered_.count({a, choices[a], b, choices[b]}) == 0;
    return count;
}

void Cover::mark(const std::vector<int>& choices) {
    for (size_t a = 0; a < choices.size(); ++a)
        for (size_t b = a + 1; b < choices.size(); ++b) covered_.insert({a, choices[a], b, choices[b]});
}

std::vector<Case> Cover::cases(int count, const Case& base, const std::function<bool(Case*)>& valid) {
    std::vector<Case> found;
    while (int(found.size()) < count) {
        std::vector<int> best;
        Case chosen;
        int most = -1, usable = 0;
        for (int attempt = 0; attempt < 50 * kDraws && usable < kDraws; ++attempt) {
            const std::vector<int> choices = draw();
            Case c = base;
            for (size_t f = 0; f < factors_.size(); ++f) factors_[f].apply(&c, choices[f]);
            c.seed = found.size() + 1;
            c.order_seed = found.size() + 1;
            if (!valid(&c)) continue;
            ++usable;
            const int gain = uncovered(choices);
            if (gain <= most) continue;
            most = gain;
            best = choices;
            chosen = std::move(c);
        }
        if (most <= 0) break;  // nothing new can be drawn
        mark(best);
        found.push_back(std::move(chosen));
    }
    return found;
}

}  // namespace quire::test
