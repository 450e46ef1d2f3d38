#include "src/attend.h"

#include <immintrin.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>

namespace quire {
namespace {

// Addresses of n rows, `stride` bytes apart: decode lists four for each key, and a compiler does one at a
// time with pointers. Returns how many it wrote. (Only generated kernels take lists, and all of them need
// AVX2.)
__attribute__((target("avx2"))) int64_t list_in_fours(const char* row, int64_t stride, int64_t n,
                                                      const char** out) {
    const auto at = reinterpret_cast<long long>(row);
    const __m256i step = _mm256_set1_epi64x(4 * stride), steps = _mm256_set1_epi64x(8 * stride);
    __m256i four = _mm256_set_epi64x(at + 3 * stride, at + 2 * stride, at + stride, at);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, four = _mm256_add_epi64(four, steps)) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), four);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 4), _mm256_add_epi64(four, step));
    }
    return i;
}

void list_rows(const char* row, int64_t stride, int64_t n, const char** out) {
    int64_t i = list_in_fours(row, stride, n, out);
    for (; i < n; ++i) out[i] = row + i * stride;
}

struct RowsList {
    const RowView* view;
    const char** out;
};

// Addresses of rows `first` .. `first` + keys of a sequence, in each of the lists.
void fill_lists(const CacheView& cache, int64_t b, int kv_head, int64_t first, int64_t keys,
                const RowsList* lists, int count) {
    const auto each_list = [&](const auto& fill) { std::for_each(lists, lists + count, fill); };
    const auto add = [&](int64_t i, int64_t row, int64_t n) {
        each_list([&](const RowsList& list) {
            list_rows(list.view->at(b, row, kv_head), list.view->row_stride, n, list.out + i);
        });
    };
    if (cache.page_size == 0) return add(0, cache.row(b, first), keys);
    if (cache.page_size == 1)  // rows that a caller has picked one by one
        return each_list([&](const RowsList& list) {
            const RowView view = *list.view;
            for (int64_t i = 0; i < keys; ++i) list.out[i] = view.at(b, cache.starts(b, first + i), kv_head);
        });
    int64_t page = first / cache.page_size, in_page = first % cache.page_size;
    for (int64_t i = 0, n; i < keys; i += n, ++page, in_page = 0) {
        n = std::min(keys - i, cache.page_size - in_page);
        add(i, cache.starts(b, page) + in_page, n);
    }
}

// Addresses of the blocks of those rows, in every kBlockTokens-th entry; `first` begins a block. The last one
// is repeated.
void list_blocks(const CacheView& cache, const RowView& view, int64_t b, int kv_head, int64_t first,
                 int64_t keys, int64_t entries, const char** out) {
    const bool paged = cache.page_size != 0;
    int64_t page = paged ? first / cache.page_size : 0, in_page = paged ? first - page * cache.page_size : 0;
    const char* last = nullptr;
    int64_t i = 0;
    for (; i < keys; ++page, in_page = 0) {
        const char* block =
            view.at(b, paged ? cache.starts(b, page) + in_page : cache.row(b, first), kv_head);
        const int64_t end = paged ? std::min(keys, i + cache.page_size - in_page) : keys;
        for (; i < end; i += kBlockTokens, block += view.row_stride) out[i] = last = block;
    }
    for (; i < entries; i += kBlockTokens) out[i] = last;
}

// To log2 units. Only -Inf hides: a large finite value must not become it here. NaN stays, as max gives its
// second operand then.
__m128 to_log2(__m128 value) {
    const __m128 lowest = _mm_set1_ps(jit::kLeastBias);
    const __m128 scaled = _mm_max_ps(lowest, _mm_mul_ps(value, _mm_set1_ps(jit::kLog2e)));
    const __m128 hides = _mm_cmpeq_ps(value, _mm_set1_ps(-INFINITY));
    return _mm_or_ps(_mm_andnot_ps(hides, scaled), _mm_and_ps(hides, value));
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
    side_by_side = false;
    const int64_t entries = std::max(padded(), fill);
    RowsList lists[4];
    int rows = 0;
    const auto set_side = [&](const RowView& view, const char** out) {
        if (view.block_shift == 0)
            lists[rows++] = {&view, out};
        else
            list_blocks(cache, view, b, kv_head, first, keys, entries / kBlockTokens * kBlockTokens, out);
    };
    const auto set_scales = [&](const RowView& side, const char** of_side, const RowView& scales,
                                const char** out) {
        if (scales.base == side.base) return of_side;  // blocks, which hold their scales; or there are none
        if (scales.base) set_side(scales, out);
        return out;
    };
    set_side(cache.key, key);
    set_side(cache.value, value);
    key_scale = set_scales(cache.key, key, cache.key_scale, key_scales_);
    value_scale = set_scales(cache.value, value, cache.value_scale, value_scales_);
    fill_lists(cache, b, kv_head, first, keys, lists, rows);
    for (int l = 0; l < rows; ++l)
        std::fill(lists[l].out + keys, lists[l].out + std::max(keys, entries), lists[l].out[keys - 1]);
}

bool RowAddresses::set_adjacent(const CacheView& cache, int64_t b, int kv_head, int64_t first, int64_t keys) {
    if (keys % jit::kKeyPadding != 0 || !cache.side_by_side(first, keys)) return false;
    begin = first;
    count = keys;
    side_by_side = true;
    const int64_t row = cache.row(b, first);
    const auto set_scales = [&](const RowView& rows, const char** of_rows, const RowView& scales,
                                const char** out) {
        if (scales.base == rows.base) return of_rows;
        if (scales.base) *out = scales.at(b, row, kv_head);
        return out;
    };
    *key = cache.key.at(b, row, kv_head);
    *value = cache.value.at(b, row, kv_head);
    key_scale = set_scales(cache.key, key, cache.key_scale, key_scales_);
    value_scale = set_scales(cache.value, value, cache.value_scale, value_scales_);
    return true;
}

float query_factor(const AttentionSpec& spec) {
    return spec.soft_cap > 0 ? spec.scale / spec.soft_cap : spec.scale * jit::kLog2e;
}

float cap_factor(const AttentionSpec& spec) { return spec.soft_cap * jit::kLog2e; }

const char* query_at(const AttentionProblem& p, const Item& item, int64_t row) {
    const int group = p.spec->group();
    return p.query.at(item.b, p.row_of(item.b, row / group), item.kv_head * group + row % group);
}

void write_rows(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const float* max,
                const float* sum, const float* output, States& states) {
    for (int64_t row = item.row_begin; row < item.row_end; ++row, output += plan.value_stride) {
        const int64_t r = row - item.row_begin;
        if (item.parts == 1) {
            finish_row(plan, p, item, row, max[r], sum[r], output);
            continue;
        }
        const size_t state = size_t(item.state + r * item.parts);
        states.max[state] = max[r];
        states.sum[state] = sum[r];
        std::copy(output, output + plan.value_stride, &states.output[state * size_t(plan.value_stride)]);
    }
}

void load_bias(const AttentionProblem& p, const Item& item, int64_t row, int64_t begin, int64_t count,
               float* bias) {
    const int group = p.spec->group(), head = item.kv_head * group + int(row % group);
    const char* first = p.num_terms ? numbers_of(p, p.terms[0], item.b, row / group, head, begin) : nullptr;
    if (first)
        load_numbers(p.terms[0].type, first, int(count), bias);
    else
        std::fill(bias, bias + count, 0.f);
    for (int i = first ? 1 : 0; i < p.num_terms; ++i)
        add_term(p, p.terms[i], item.b, row / group, head, begin, count, bias);
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) _mm_storeu_ps(bias + j, to_log2(_mm_loadu_ps(bias + j)));
    for (; j < count; ++j) _mm_store_ss(bias + j, to_log2(_mm_load_ss(bias + j)));
}

void drop(const AttentionProblem& p, const Item& item, int64_t row, int64_t begin, int64_t count,
          float* probabilities, int64_t stride) {
    const int group = p.spec->group();
    p.drop(item.b, row / group, item.kv_head * group + int(row % group), begin, count, probabilities, stride);
}

}  // namespace quire
