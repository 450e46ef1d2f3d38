#include "src/portable.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace quire::portable {
namespace {

// Key t of the row's kv head, or -inf where the mask hides it (whatever the key holds).
double score(const AttentionProblem& p, const std::vector<float>& query, std::vector<float>* key, float slope,
             int64_t b, int64_t i, int h, int64_t t) {
    const AttentionSpec& spec = *p.spec;
    const int64_t row = p.cache.row(b, t);
    float added = 0;
    for (int term = 0; term < p.num_terms; ++term) add_term(p, p.terms[term], b, i, h, t, 1, &added);
    if (added == -INFINITY) return -INFINITY;
    decode_token(spec.key_format, Side::key, spec.D, p.cache.key_at(b, row, h / spec.group()), key->data());
    double s = 0;
    for (int d = 0; d < spec.D; ++d) s += double(query[size_t(d)]) * double((*key)[size_t(d)]);
    s *= double(spec.scale);
    if (spec.soft_cap > 0) s = double(spec.soft_cap) * std::tanh(s / double(spec.soft_cap));
    if (spec.alibi) s += double(slope) * double(t - p.position(b, i));
    return s + double(added);
}

// A rotated row is float32 from there on.
void store_row(quire_type type, const Rotation& rotation, const Rotary::Row& angles, int dim,
               const void* numbers, const quire_format& format, Side side, const TokenPlace& to) {
    if (!rotation) return encode_token(format, side, dim, type, numbers, to);
    std::vector<float> values;
    for (int d = 0; d < dim; ++d) values.push_back(load_number(type, numbers, d));
    rotate_row(rotation, dim, angles.cos, angles.sin, values.data());
    encode_token(format, side, dim, QUIRE_F32, values.data(), to);
}

}  // namespace

void attend_row(const AttentionProblem& p, int64_t b, int64_t i, int h) {
    const AttentionSpec& spec = *p.spec;
    const int64_t token = p.row_of(b, i);
    const float slope = spec.alibi ? alibi_slopes(spec.H)[size_t(h)] : 0;
    std::vector<float> query(size_t(spec.D)), key(size_t(spec.D)), value(size_t(spec.Dv));
    for (int d = 0; d < spec.D; ++d) query[size_t(d)] = load_number(spec.type, p.query.at(b, token, h), d);

    const KeyRange range = p.visible(b, i);
    std::vector<double> scores;
    double top = p.sinks ? double(p.sink(h)) : -INFINITY;
    for (int64_t t = range.begin; t < range.end; ++t) {
        scores.push_back(score(p, query, &key, slope, b, i, h, t));
        top = std::max(top, scores.back());
    }

    std::vector<double> sums(size_t(spec.Dv), 0.0);
    double total = p.sinks && top > -INFINITY ? std::exp(double(p.sink(h)) - top) : 0;
    for (int64_t t = range.begin; t < range.end; ++t) {
        const double s = scores[size_t(t - range.begin)];
        if (s == -INFINITY) continue;  // hidden: its value does not count, even NaN
        const double weight = std::exp(s - top);
        float factor = 1;
        if (p.dropout) p.drop(b, i, h, t, 1, &factor, 1);
        const int64_t row = p.cache.row(b, t);
        decode_token(spec.value_format, Side::value, spec.Dv, p.cache.value_at(b, row, h / spec.group()),
                     value.data());
        for (int d = 0; d < spec.Dv; ++d)
            sums[size_t(d)] += weight * double(factor) * double(value[size_t(d)]);
        total += weight;
    }
    for (int d = 0; d < spec.Dv; ++d)
        store_number(spec.type, p.output.at(b, token, h), d,
                     total == 0 ? 0.f : float(sums[size_t(d)] / total));
    if (p.lse.base)
        store_number(QUIRE_F32, p.lse.at(b, token, h), 0,
                     float(total == 0 ? -INFINITY : top + std::log(total)));
}

void append_row(const AppendProblem& p, int64_t b, int64_t i, int h) {
    const AppendSpec& spec = *p.spec;
    const int64_t token = p.row_of(b, i), row = p.cache.row(b, p.first_position(b) + i);
    const Rotary::Row angles = p.rotary ? p.rotary.row(p.position(b, i)) : Rotary::Row{};
    store_row(spec.type, spec.key_rotation, angles, spec.D, p.new_key.at(b, token, h), spec.key_format,
              Side::key, p.cache.key_at(b, row, h));
    if (spec.Dv > 0)
        store_row(spec.type, spec.value_rotation, angles, spec.Dv, p.new_value.at(b, token, h),
                  spec.value_format, Side::value, p.cache.value_at(b, row, h));
}

void read_row(const ReadProblem& p, int64_t b, int64_t t, int h) {
    const ReadSpec& spec = *p.spec;
    const int64_t row = p.cache.row(b, t);
    const auto read = [&](const quire_format& format, Side side, int dim, const TokenPlace& from,
                          const RowView& to) {
        std::vector<float> values(static_cast<size_t>(dim));
        decode_token(format, side, dim, from, values.data());
        for (int r = 0; r < spec.repeat; ++r)
            for (int d = 0; d < dim; ++d)
                store_number(spec.type, to.at(b, p.row_of(b, t), h * spec.repeat + r), d, values[size_t(d)]);
    };
    read(spec.key_format, Side::key, spec.D, p.cache.key_at(b, row, h), p.key);
    read(spec.value_format, Side::value, spec.Dv, p.cache.value_at(b, row, h), p.value);
}

}  // namespace quire::portable
