#include "src/problem.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace quire {
namespace {

Status check_mask_shape(const quire_tensor& t, const AttentionProblem& p) {
    const int64_t H = p.spec->H, columns = p.keys_at.begin(p.B);
    const int last = t.rank - 1;
    if (t.rank == 2) {
        QUIRE_TRY(check_tensor("attn_mask", &t, t.type, "[n, >= kvstarts[B]]", {p.n, kAny}));
    } else {
        QUIRE_TRY(check_tensor("attn_mask", &t, t.type, "[H or 1, n, >= kvstarts[B]]", {kAny, p.n, kAny}));
        if (t.shape[0] != H && t.shape[0] != 1)
            return invalid("attn_mask has shape %s: its first dimension must be 1 or num_heads, %lld",
                           shape_text(t).c_str(), (long long)H);
    }
    if (t.shape[last] < columns)
        return invalid("attn_mask has %lld columns: must have at least kvstarts[B], %lld",
                       (long long)t.shape[last], (long long)columns);
    return {};
}

// [B or 1, H or 1, S or 1, T or 1] for the longest sequences.
Status check_batch_mask_shape(const quire_tensor& t, const AttentionProblem& p) {
    int64_t S = 0, T = 0;
    for (int64_t b = 0; b < p.B; ++b) {
        S = std::max(S, p.queries(b));
        T = std::max(T, p.keys(b));
    }
    QUIRE_TRY(
        check_tensor("attn_mask", &t, t.type, "[B or 1, H or 1, S or 1, T or 1]", {kAny, kAny, kAny, kAny}));
    const int64_t exact[2] = {p.B, p.spec->H}, least[2] = {S, T};
    for (int i = 0; i < 4; ++i) {
        const bool fits = t.shape[i] == 1 || (i < 2 ? t.shape[i] == exact[i] : t.shape[i] >= least[i - 2]);
        if (!fits)
            return invalid("attn_mask has shape %s: must be [%lld or 1, %lld or 1, %lld or 1, %lld or 1]",
                           shape_text(t).c_str(), (long long)p.B, (long long)p.spec->H, (long long)S,
                           (long long)T);
    }
    return {};
}

// Adds the mask's term; the problem's sequences are known.
Status check_mask(const quire_tensor* tensor, const quire_tensor* slopes, AttentionProblem* p) {
    if (slopes != nullptr) {
        QUIRE_TRY(check_tensor("attn_mask_slopes", slopes, QUIRE_F32, "[H]", {p->spec->H}));
        if (tensor == nullptr || tensor->type == QUIRE_BOOL)
            return invalid("attn_mask_slopes is given: must be NULL without an attn_mask of numbers");
    }
    if (tensor == nullptr) return {};
    const quire_tensor& t = *tensor;
    if (t.type != QUIRE_F32 && t.type != QUIRE_F16 && t.type != QUIRE_BF16 && t.type != QUIRE_BOOL)
        return invalid("attn_mask has type %s: must be f32, f16, bf16 or bool", type_text(t.type).c_str());
    if (t.rank < 2 || t.rank > 4) return invalid("attn_mask has rank %d: must be 2, 3 or 4", t.rank);
    QUIRE_TRY(t.rank == 4 ? check_batch_mask_shape(t, *p) : check_mask_shape(t, *p));
    ScoreTerm term = tensor_term(t.type == QUIRE_BOOL ? ScoreTerm::hide_where_zero : ScoreTerm::add, t);
    term.packed = t.rank != 4;
    if (slopes != nullptr) {
        term.slopes = static_cast<const UnalignedFloat*>(slopes->data);
        term.slope_stride = slopes->strides[0];
    }
    if (p->n > 0 && t.data != nullptr) p->add_term(term);
    return {};
}

Status check_tree_mask(const quire_tensor* tensor, AttentionProblem* p) {
    if (tensor == nullptr) return {};
    QUIRE_TRY(check_tensor("tree_mask", tensor, QUIRE_INT64, "[n, words]", {p->n, kAny}));
    for (int64_t b = 0; b < p->B; ++b) {
        const int64_t words = p->queries(b) / 64 + (p->queries(b) % 64 != 0);
        if (tensor->shape[1] < words)
            return invalid("tree_mask has %lld words a token: sequence %lld has %lld new keys and needs %lld",
                           (long long)tensor->shape[1], (long long)b, (long long)p->queries(b),
                           (long long)words);
    }
    ScoreTerm term = tensor_term(ScoreTerm::tree, *tensor);
    term.packed = true;
    if (p->n > 0 && tensor->data != nullptr) p->add_term(term);
    return {};
}

// Query tokens: packed rows with seqstarts, or [B, S, H, D].
Status check_queries(const quire_attention_args& args, AttentionProblem* p) {
    const AttentionSpec& spec = *p->spec;
    p->batched = args.query != nullptr && args.query->rank == 4;
    if (!p->batched) {
        QUIRE_TRY(check_rows("query", args.query, spec.type, "[n, H, D]", {kAny, spec.H, spec.D}, &p->query));
        p->n = p->queries_at.uniform = args.query->shape[0];
        return check_sequences(args.seqstarts, p->n, &p->queries_at.given, &p->B);
    }
    QUIRE_TRY(
        check_rows("query", args.query, spec.type, "[B, S, H, D]", {kAny, kAny, spec.H, spec.D}, &p->query));
    if (args.seqstarts != nullptr)
        return invalid("seqstarts is given: must be NULL with a query [B, S, H, D]");
    p->B = args.query->shape[0];
    QUIRE_TRY(check_batch("query", p->B));
    p->queries_at.uniform = args.query->shape[1];
    p->n = p->B * p->queries_at.uniform;
    return {};
}

// Keys: [B, T, Hk, D], dense rows, or a cache.
Status check_keys(const quire_attention_args& args, AttentionProblem* p) {
    const AttentionSpec& spec = *p->spec;
    CacheView& cache = p->cache;
    QUIRE_TRY(check_cache({args.key, args.value, args.key_scale, args.value_scale, args.cachestarts}, spec,
                          p->B, &cache));
    if (cache.batched) {
        if (args.kvstarts != nullptr)
            return invalid("kvstarts is given: must be NULL with a key [B, T, Hk, D]");
        p->keys_at.uniform = cache.slots;
        return {};
    }
    if (args.kvstarts == nullptr) {
        if (p->B != 1) return invalid("kvstarts is NULL: must be given for %lld sequences", (long long)p->B);
        if (args.cachestarts != nullptr) return invalid("kvstarts is NULL: must be given with cachestarts");
        p->keys_at.uniform = cache.slots;
    } else {
        QUIRE_TRY(check_starts("kvstarts", args.kvstarts, p->B, kAny, &p->keys_at.given));
    }
    if (args.cachestarts == nullptr) {
        if (spec.page_size != 0) return invalid("cachestarts is NULL: must be given with a page_size");
        if (p->keys_at.begin(p->B) > cache.slots)
            return invalid("kvstarts[%lld] is %lld: must be at most the rows of key, %lld", (long long)p->B,
                           (long long)p->keys_at.begin(p->B), (long long)cache.slots);
        cache.starts = p->keys_at.given;
        for (int64_t b = 0; cache.starts && b < p->B; ++b)
            if (p->keys(b) > 0 && cache.blocks && cache.starts(b) % kBlockTokens != 0)
                return check_block_start(("kvstarts[" + std::to_string(b) + "]").c_str(), cache.starts(b),
                                         cache);
        return {};
    }
    QUIRE_TRY(check_cachestarts(args.cachestarts, p->B, spec.page_size, &cache));
    for (int64_t b = 0; b < p->B; ++b) QUIRE_TRY(check_positions(cache, b, p->keys(b)));
    return {};
}

Status check_key_ranges(const quire_attention_args& args, AttentionProblem* p) {
    if (args.query_positions != nullptr)
        QUIRE_TRY(check_index("query_positions", args.query_positions, "[B]", {p->B}, &p->query_positions));
    if (args.key_begin != nullptr)
        QUIRE_TRY(check_index("key_begin", args.key_begin, "[B]", {p->B}, &p->key_begin));
    if (args.key_end != nullptr) QUIRE_TRY(check_index("key_end", args.key_end, "[B]", {p->B}, &p->key_end));
    constexpr int64_t kFar = int64_t(1) << 40;  // keeps sums of positions and lengths in range
    for (int64_t b = 0; b < p->B; ++b) {
        const auto check = [&](const char* name, const IndexView& view, int64_t low, int64_t high) -> Status {
            if (!view || (view(b) >= low && view(b) <= high)) return {};
            return check_range((name + ("[" + std::to_string(b) + "]")).c_str(), view(b), low, high);
        };
        QUIRE_TRY(check("query_positions", p->query_positions, -kFar, kFar));
        QUIRE_TRY(check("key_begin", p->key_begin, 0, p->keys(b)));
        QUIRE_TRY(check("key_end", p->key_end, 0, p->keys(b)));
    }
    return {};
}

Status check_dropout(const quire_attention_args& args, AttentionProblem* p) {
    if (!(args.dropout_rate >= 0 && args.dropout_rate < 1))
        return invalid("dropout_rate is %g: must be at least 0 and less than 1", double(args.dropout_rate));
    QUIRE_TRY(check_range("dropout_step", args.dropout_step, 0, UINT32_MAX));
    p->dropout = {args.dropout_rate, uint64_t(args.dropout_seed), uint32_t(args.dropout_step)};
    return {};
}

Status check_outputs(const quire_attention_args& args, AttentionProblem* p) {
    const AttentionSpec& spec = *p->spec;
    const int64_t S = p->queries_at.uniform;
    if (p->batched) {
        QUIRE_TRY(check_rows("output", args.output, spec.type, "[B, S, H, Dv]", {p->B, S, spec.H, spec.Dv},
                             &p->output));
        QUIRE_TRY(check_written("output", *args.output));
        if (args.lse == nullptr) return {};
        QUIRE_TRY(check_tensor("lse", args.lse, QUIRE_F32, "[B, S, H]", {p->B, S, spec.H}));
    } else {
        QUIRE_TRY(
            check_rows("output", args.output, spec.type, "[n, H, Dv]", {p->n, spec.H, spec.Dv}, &p->output));
        QUIRE_TRY(check_written("output", *args.output));
        if (args.lse == nullptr) return {};
        QUIRE_TRY(check_tensor("lse", args.lse, QUIRE_F32, "[n, H]", {p->n, spec.H}));
    }
    QUIRE_TRY(check_written("lse", *args.lse));
    p->lse = row_view(*args.lse, p->batched);
    return {};
}

}  // namespace

int64_t AttentionProblem::position(int64_t b, int64_t i) const {
    if (query_positions) return query_positions(b) + i;
    return spec->top_left ? i : keys(b) - queries(b) + i;
}

ScoreTerm tensor_term(ScoreTerm::Kind kind, const quire_tensor& t) {
    ScoreTerm term;
    term.kind = kind;
    term.base = static_cast<const char*>(t.data);
    term.type = t.type;
    int64_t* strides[] = {&term.batch_stride, &term.head_stride, &term.row_stride, &term.column_stride};
    for (int i = 0; i < t.rank; ++i) *strides[4 - t.rank + i] = stride_bytes(t, i);
    return term;
}

namespace {

float mask_value(const ScoreTerm& term, const char* at) {
    switch (term.type) {
        case QUIRE_BOOL: return float(*at != 0);
        case QUIRE_INT32: return float(*reinterpret_cast<const UnalignedInt32*>(at));
        default: return load_number(term.type, at, 0);
    }
}

float term_value(const ScoreTerm& term, float x) {
    switch (term.kind) {
        case ScoreTerm::hide_where_zero: return x == 0 ? -INFINITY : 0.f;
        case ScoreTerm::add_where_zero: return x == 0 ? term.a : 0.f;
        case ScoreTerm::affine: return term.a * x + term.b;
        default: return x;
    }
}

bool is_row_of_numbers(const ScoreTerm& term) {
    return term.kind == ScoreTerm::add && term.type != QUIRE_BOOL && term.type != QUIRE_INT32 &&
           term.column_stride == type_bits(term.type) / 8;
}

const char* row_of(const AttentionProblem& p, const ScoreTerm& term, int64_t b, int64_t i, int h) {
    return term.base + b * term.batch_stride + h * term.head_stride +
           (term.packed ? p.queries_at.begin(b) + i : i) * term.row_stride;
}
int64_t column_of(const AttentionProblem& p, const ScoreTerm& term, int64_t b, int64_t begin) {
    return (begin + (term.packed ? p.keys_at.begin(b) : 0)) * term.column_stride;
}

void add_tree(const AttentionProblem& p, const char* words, int64_t b, int64_t begin, int64_t count,
              float* out, int64_t word_stride) {
    const int64_t first_new = p.keys(b) - p.queries(b);
    for (int64_t t = std::max(begin, first_new); t < begin + count; ++t) {
        const int64_t j = t - first_new;
        const auto word = uint64_t(*reinterpret_cast<const UnalignedInt64*>(words + j / 64 * word_stride));
        if (!(word >> (j % 64) & 1)) out[t - begin] = -INFINITY;
    }
}

}  // namespace

void add_term(const AttentionProblem& p, const ScoreTerm& term, int64_t b, int64_t i, int h, int64_t begin,
              int64_t count, float* out) {
    if (term.kind == ScoreTerm::add_outside) {
        for (int64_t t = begin; t < begin + count; ++t)
            if (t < (term.begin ? term.begin(b) : 0) || t >= term.end(b)) out[t - begin] += term.a;
        return;
    }
    const char* row = row_of(p, term, b, i, h);
    if (term.kind == ScoreTerm::tree) return add_tree(p, row, b, begin, count, out, term.column_stride);
    const char* at = row + column_of(p, term, b, begin);
    const float slope = term.slopes ? term.slopes[h * term.slope_stride] : 1;
    constexpr int64_t kChunk = 128;
    float values[kChunk];
    for (; count > 0; count -= kChunk, out += kChunk) {
        const int n = int(std::min(count, kChunk));
        if (is_row_of_numbers(term))
            load_numbers(term.type, at, n, values);
        else
            for (int j = 0; j < n; ++j)
                values[j] = term_value(term, mask_value(term, at + j * term.column_stride));
        if (slope != 1)
            for (int j = 0; j < n; ++j) values[j] = values[j] == -INFINITY ? values[j] : slope * values[j];
        for (int j = 0; j < n; ++j) out[j] += values[j];
        at += kChunk * term.column_stride;
    }
}

const char* numbers_of(const AttentionProblem& p, const ScoreTerm& term, int64_t b, int64_t i, int h,
                       int64_t begin) {
    if (!is_row_of_numbers(term) || term.slopes) return nullptr;
    return row_of(p, term, b, i, h) + column_of(p, term, b, begin);
}

Status make_attention_problem(const AttentionSpec& spec, const quire_attention_args& args,
                              AttentionProblem* problem) {
    *problem = AttentionProblem();
    AttentionProblem& p = *problem;
    p.spec = &spec;
    QUIRE_TRY(check_queries(args, &p));
    QUIRE_TRY(check_keys(args, &p));
    QUIRE_TRY(check_key_ranges(args, &p));
    QUIRE_TRY(check_mask(args.attn_mask, args.attn_mask_slopes, &p));
    QUIRE_TRY(check_tree_mask(args.tree_mask, &p));
    if (args.sinks != nullptr) {
        QUIRE_TRY(check_tensor("sinks", args.sinks, QUIRE_F32, "[H]", {spec.H}));
        p.sinks = static_cast<const UnalignedFloat*>(args.sinks->data);
        p.sink_stride = args.sinks->strides[0];
    }
    QUIRE_TRY(check_range("decoding_batches", args.decoding_batches, 0, p.B));
    p.decoding_batches = args.decoding_batches;
    QUIRE_TRY(check_dropout(args, &p));
    return check_outputs(args, &p);
}

}  // namespace quire
