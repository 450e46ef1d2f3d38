#include "src/attend.h"

#include <emmintrin.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <new>

namespace quire {
namespace {

constexpr float kLog2e = 1.44269504f;

// Addresses of n rows, `stride` bytes apart; two at a time, which compilers do not do with pointers.
void list_rows(const char* row, int64_t stride, int64_t n, const char** out) {
    const auto at = reinterpret_cast<long long>(row);
    __m128i pair = _mm_set_epi64x(at + stride, at);
    const __m128i step = _mm_set1_epi64x(2 * stride);
    int64_t i = 0;
    for (; i + 2 <= n; i += 2, pair = _mm_add_epi64(pair, step))
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), pair);
    if (i < n) out[i] = row + i * stride;
}

}  // namespace

void Scratch::reserve(size_t floats) {
    floats = (floats + 15) / 16 * 16;
    if (floats <= capacity_) return;
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, floats * 4)));
    if (!memory_) {
        capacity_ = 0;
        throw std::bad_alloc();
    }
    capacity_ = floats;
}

float* Scratch::floats(size_t count) {
    float* begin = memory_.get() + used_;
    used_ += (count + 15) / 16 * 16;
    assert(used_ <= capacity_);
    return begin;
}

void RowAddresses::set(const CacheView& cache, int64_t b, int kv_head, int64_t first, int64_t keys,
                       int64_t fill) {
    begin = first;
    count = keys;
    const bool key_scales = cache.key_scale.base, value_scales = cache.value_scale.base;
    int64_t done = 0;
    // Pages of one row: rows that a caller has picked one by one.
    for (; cache.page_size == 1 && done < keys; ++done) {
        const int64_t row = cache.starts(b, first + done);
        key[done] = cache.key.at(b, row, kv_head);
        value[done] = cache.value.at(b, row, kv_head);
        if (key_scales) key_scale[done] = cache.key_scale.at(b, row, kv_head);
        if (value_scales) value_scale[done] = cache.value_scale.at(b, row, kv_head);
    }
    while (done < keys) {
        const int64_t t = first + done, row = cache.row(b, t);
        const int64_t left_of_page =
            cache.page_size == 0 ? keys - done : cache.page_size - t % cache.page_size;
        const int64_t n = std::min(keys - done, left_of_page);
        const auto run = [&](const RowView& view, const char** out) {
            list_rows(view.at(b, row, kv_head), view.row_stride, n, out + done);
        };
        run(cache.key, key);
        run(cache.value, value);
        if (key_scales) run(cache.key_scale, key_scale);
        if (value_scales) run(cache.value_scale, value_scale);
        done += n;
    }
    const int64_t last = keys - 1, end = std::max(padded(), fill);
    for (int64_t i = keys; i < end; ++i) {
        key[i] = key[last];
        value[i] = value[last];
        if (key_scales) key_scale[i] = key_scale[last];
        if (value_scales) value_scale[i] = value_scale[last];
    }
}

float query_factor(const AttentionSpec& spec) {
    return spec.soft_cap > 0 ? spec.scale / spec.soft_cap : spec.scale * kLog2e;
}

float cap_factor(const AttentionSpec& spec) { return spec.soft_cap * kLog2e; }

const char* query_at(const AttentionProblem& p, const Item& item, int64_t row) {
    const int group = p.spec->group();
    return p.query.at(item.b, p.row_of(item.b, row / group), item.kv_head * group + row % group);
}

void load_bias(const AttentionProblem& p, const Item& item, int64_t row, int64_t begin, int64_t count,
               float* bias, int64_t stride) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    const int group = p.spec->group(), head = item.kv_head * group + int(row % group);
    for (int64_t j = 0; j < count; ++j) bias[j * stride] = 0;
    for (int i = 0; i < p.num_terms; ++i)
        add_term(p, p.terms[i], item.b, row / group, head, begin, count, bias, stride);
    // Only -Inf hides: a large finite value must not become it here.
    for (int64_t j = 0; j < count; ++j) {
        float& value = bias[j * stride];
        if (value != -INFINITY) value = std::isnan(value) ? value : std::max(value * kLog2e, kLowest);
    }
}

void drop(const AttentionProblem& p, const Item& item, int64_t row, int64_t begin, int64_t count,
          float* probabilities, int64_t stride) {
    const int group = p.spec->group();
    p.drop(item.b, row / group, item.kv_head * group + int(row % group), begin, count, probabilities, stride);
}

}  // namespace quire
