#include "tests/support/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::test {
namespace {

// Slopes of the golden README: powers of two first, then the odd steps between.
double alibi_slope(int h, int H) {
    int power = 1;
    while (power * 2 <= H) power *= 2;
    return h < power ? std::exp2(-8.0 * (h + 1) / power) : std::exp2(-4.0 * (2 * (h - power) + 1) / power);
}

// Keys and values of one sequence and kv head.
template <typename Real>
struct Rows {
    int64_t T;
    std::vector<Real> keys;    // [D][T]: the scores of all keys grow together, each in the order of d
    std::vector<Real> values;  // [T][Dv]
};

template <typename Real>
Rows<Real> load_rows(const Tensors& t, int64_t b, int head) {
    const Case& c = t.spec;
    const int64_t T = c.sequences[size_t(b)].keys;
    Rows<Real> rows{T, std::vector<Real>(size_t(c.D * T)), std::vector<Real>(size_t(c.Dv * T))};
    std::vector<float> row(size_t(std::max(c.D, c.Dv)));
    for (int64_t j = 0; j < T; ++j) {
        t.key.load(t.slot(b, j), head, row.data());
        for (int d = 0; d < c.D; ++d) rows.keys[size_t(d * T + j)] = Real(row[size_t(d)]);
        t.value.load(t.slot(b, j), head, row.data());
        for (int d = 0; d < c.Dv; ++d) rows.values[size_t(j * c.Dv + d)] = Real(row[size_t(d)]);
    }
    return rows;
}

template <typename Real>
class QueryRow {
public:
    QueryRow(const Tensors& tensors, const Rows<Real>& rows, int64_t b, int64_t i, int h)
        : t_(tensors),
          c_(tensors.spec),
          rows_(rows),
          b_(b),
          i_(i),
          token_(tensors.first_token(b) + i),
          h_(h) {
        c_.visible(b, i, &begin_, &end_);
    }

    void attend(Real* output, Real* lse) {
        score();
        Real top = c_.sinks ? Real(t_.sink(h_)) : kHidden;
        for (int64_t j = begin_; j < end_; ++j) top = std::max(top, scores_[size_t(j)]);
        Real total = c_.sinks && top > kHidden ? std::exp(Real(t_.sink(h_)) - top) : Real(0);
        for (int64_t j = begin_; j < end_; ++j) {
            if (scores_[size_t(j)] == kHidden) continue;
            const Real weight = std::exp(scores_[size_t(j)] - top);
            total += weight;
            const Real* value = rows_.values.data() + j * c_.Dv;
            for (int d = 0; d < c_.Dv; ++d) output[d] += weight * value[d];
        }
        for (int d = 0; d < c_.Dv; ++d) output[d] = total == 0 ? Real(0) : output[d] / total;
        *lse = total == 0 ? kHidden : top + std::log(total);
    }

private:
    static constexpr Real kHidden = -std::numeric_limits<Real>::infinity();

    void score() {
        const Real scale = c_.scale == 0 ? Real(1) / std::sqrt(Real(c_.D)) : Real(c_.scale);
        scores_.assign(size_t(rows_.T), Real(0));
        for (int d = 0; d < c_.D; ++d) {
            const Real q = Real(t_.query_at(token_, h_, d));
            const Real* key = rows_.keys.data() + d * rows_.T;
            for (int64_t j = begin_; j < end_; ++j) scores_[size_t(j)] += q * key[j];
        }
        for (int64_t j = begin_; j < end_; ++j) {
            Real x = scores_[size_t(j)] * scale;
            if (c_.soft_cap > 0) x = Real(c_.soft_cap) * std::tanh(x / Real(c_.soft_cap));
            if (c_.alibi) x += Real(alibi_slope(h_, c_.H)) * Real(j - c_.position(b_, i_));
            const Real mask = Real(t_.mask_at(token_, h_, b_, j));
            scores_[size_t(j)] = mask == kHidden ? kHidden : x + mask;
        }
    }

    const Tensors& t_;
    const Case& c_;
    const Rows<Real>& rows_;
    const int64_t b_, i_, token_;
    const int h_;
    int64_t begin_ = 0, end_ = 0;
    std::vector<Real> scores_;
};

}  // namespace

template <typename Real>
Attended<Real> plain_attention(const Tensors& tensors) {
    const Case& c = tensors.spec;
    Attended<Real> result{std::vector<Real>(size_t(c.n() * c.H * c.Dv)),
                          std::vector<Real>(size_t(c.n() * c.H))};
    for (int64_t b = 0; b < c.B(); ++b)
        for (int head = 0; head < c.Hk; ++head) {
            const Rows<Real> rows = load_rows<Real>(tensors, b, head);
            for (int64_t i = 0; i < c.sequences[size_t(b)].queries; ++i)
                for (int h = head * c.group(); h < (head + 1) * c.group(); ++h) {
                    const size_t row = size_t((tensors.first_token(b) + i) * c.H + h);
                    QueryRow<Real>(tensors, rows, b, i, h)
                        .attend(result.output.data() + row * size_t(c.Dv), result.lse.data() + row);
                }
        }
    return result;
}

template Attended<float> plain_attention(const Tensors&);
template Attended<double> plain_attention(const Tensors&);

}  // namespace quire::test
