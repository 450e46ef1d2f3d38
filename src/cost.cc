#include "src/cost.h"

#include <algorithm>
#include <cstdint>

namespace quire {
namespace {

double bytes_of_numbers(quire_type type, double count) { return count * type_bits(type) / 8; }

double row_bytes(const quire_format& format, int dim) {
    if (token_block_info(format.type)) return double(block_bytes(format, dim)) / kBlockTokens;
    double bytes = double(bytes_of(format.type, dim));  // of blocks: with their scales
    if (is_quantised(format)) bytes += bytes_of_numbers(format.scale_type, dim / format.quant_group);
    return bytes;
}

// Of two rows in one: a value may be a view of its key, as in MLA.
double shared_bytes(const RowView& a, double bytes_a, const RowView& b, double bytes_b) {
    if (!a.base || !b.base || a.row_stride != b.row_stride || a.head_stride != b.head_stride) return 0;
    const double apart = double(reinterpret_cast<intptr_t>(b.base) - reinterpret_cast<intptr_t>(a.base));
    return std::max(0., std::min(bytes_a, apart + bytes_b) - std::max(0., apart));
}

double shared_bytes(const CacheSpec& spec, const CacheView& cache) {
    const quire_format &key = spec.key_format, &value = spec.value_format;
    if (token_block_info(key.type)) return 0;
    double bytes = shared_bytes(cache.key, double(bytes_of(key.type, spec.D)), cache.value,
                                double(bytes_of(value.type, spec.Dv)));
    if (is_quantised(key) && is_quantised(value))
        bytes +=
            shared_bytes(cache.key_scale, bytes_of_numbers(key.scale_type, spec.D / key.quant_group),
                         cache.value_scale, bytes_of_numbers(value.scale_type, spec.Dv / value.quant_group));
    return bytes;
}

}  // namespace

Prediction predict(const Cost& cost, double bytes_per_second, double flops_per_second) {
    if ((cost.bytes > 0 && bytes_per_second == 0) || (cost.flops > 0 && flops_per_second == 0)) return {};
    const double memory = cost.bytes > 0 ? cost.bytes / bytes_per_second : 0;
    const double compute = cost.flops > 0 ? cost.flops / flops_per_second : 0;
    return {memory >= compute ? QUIRE_BOUND_MEMORY : QUIRE_BOUND_COMPUTE, std::max(memory, compute)};
}

double cache_row_bytes(const CacheSpec& spec) {
    return row_bytes(spec.key_format, spec.D) + row_bytes(spec.value_format, spec.Dv);
}

// A key that some query of the sequence sees is read once.
Cost cost_of(const AttentionProblem& p) {
    const AttentionSpec& spec = *p.spec;
    double read = 0, seen = 0;
    for (int64_t b = 0; b < p.B; ++b) {
        KeyRange all{INT64_MAX, INT64_MIN};
        for (int64_t i = 0; i < p.queries(b); ++i) {
            const KeyRange keys = p.visible(b, i);
            if (keys.begin >= keys.end) continue;
            all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
            seen += double(keys.end - keys.begin);
        }
        if (all.begin < all.end) read += double(all.end - all.begin);
    }
    double tokens = 0;
    for (int64_t b = 0; b < p.B; ++b) tokens += double(p.queries(b));
    Cost cost;
    cost.bytes = read * spec.Hk * (cache_row_bytes(spec) - shared_bytes(spec, p.cache)) +
                 bytes_of_numbers(spec.type, tokens * spec.H * (spec.D + spec.Dv));
    if (p.lse.base != nullptr) cost.bytes += tokens * spec.H * 4;
    cost.flops = 2 * seen * spec.H * (spec.D + spec.Dv);
    return cost;
}

Cost cost_of(const AppendProblem& p) {
    const AppendSpec& spec = *p.spec;
    const double rows = double(p.n) * spec.Hk;
    return {rows * (bytes_of_numbers(spec.type, spec.D + spec.Dv) + cache_row_bytes(spec)), 0};
}

Cost cost_of(const ReadProblem& p) {
    const ReadSpec& spec = *p.spec;
    double rows = 0;
    for (int64_t b = 0; b < p.B; ++b) rows += double(p.keys(b)) * spec.Hk;
    return {rows * (cache_row_bytes(spec) + spec.repeat * bytes_of_numbers(spec.type, spec.D + spec.Dv)), 0};
}

Cost cost_of(const RowCopy& copy) {
    double rows = double(copy.B) * double(copy.rows);
    if (copy.counts) {
        rows = 0;
        for (int64_t b = 0; b < copy.B; ++b) rows += double(copy.counts(b));
    }
    const quire_type from = copy.from_type == QUIRE_NONE ? copy.type : copy.from_type;
    const double elements = rows * copy.heads * copy.dim;
    const double read = copy.from.base != nullptr ? bytes_of_numbers(from, elements) : 0;
    return {read + bytes_of_numbers(copy.type, elements), 0};
}

Cost cost_of(const Projection& p) {
    const double in = p.weights->inputs(), out = p.weights->outputs(), rows = double(p.rows);
    return {4 * in * out + bytes_of_numbers(p.from.type, rows * in) + bytes_of_numbers(p.to.type, rows * out),
            2 * rows * in * out};
}

}  // namespace quire
