// A checked, defaulted, size-resolved view of one call. Everything that a caller can get wrong is checked
// here; after it, code assumes. Letters as in quire.h; strides are in bytes.
#pragma once
#include <algorithm>
#include <vector>

#include "src/cache_view.h"
#include "src/dropout.h"
#include "src/problem_mask.h"
#include "src/rotation.h"

namespace quire {

// ---- what a descriptor says, checked and with its defaults filled in ----

struct AttentionSpec : CacheSpec {
    int H;
    quire_type type;  // of query and output
    float scale;
    bool causal, alibi, top_left;
    int64_t window_left, window_right;  // < 0: no bound
    float soft_cap;                     // 0: none
    quire_precision precision;
    int group() const { return H / Hk; }  // query heads that share a kv head
};

struct AppendSpec : CacheSpec {
    quire_type type;  // of the new keys and values
    Rotation key_rotation, value_rotation;
};

struct ReadSpec : CacheSpec {
    quire_type type;  // of what is written
    int repeat;       // heads written for each one read
};

// Names the field of the descriptor in its message.
Status check_attention_desc(const quire_attention_desc& desc, AttentionSpec* spec);
Status check_append_desc(const quire_append_desc& desc, AppendSpec* spec);
// Of quire_rotate: rows that are stored in their own type, and no values (Dv 0).
Status check_rotate_desc(const quire_rotate_desc& desc, AppendSpec* spec);
Status check_format(const char* name, const quire_format& format, int dim);

// ALiBi slope of each query head (golden README: powers of two first, then the odd steps between).
std::vector<float> alibi_slopes(int H);

// ---- one call ----

// Something that is added to scores, or hides keys, by a tensor or a range. An operator may have several.
struct ScoreTerm {
    enum Kind {
        add,  // x; -Inf hides
        hide_where_zero,
        add_where_zero,  // a where x is 0
        affine,          // a * x + b
        tree,            // hides new key j where bit j is not set
        add_outside      // a where t is outside begin[b] .. end[b]
    };
    Kind kind = add;
    const char* base = nullptr;
    quire_type type = QUIRE_NONE;
    int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;  // 0: broadcast
    bool packed = false;  // rows are tokens of all sequences, columns kvstarts(b) + t
    float a = 0, b = 0;
    IndexView begin, end;                    // add_outside
    const UnalignedFloat* slopes = nullptr;  // [H], slope_stride apart: add, x times the head's slope
    int64_t slope_stride = 0;
};

// What a block of keys is to a few queries.
struct BlockView {
    bool seen = true;     // by one of them
    bool bias = false;    // terms have to be added
    bool ragged = false;  // one of them does not see all of it; without a map nothing is said here
};

struct AttentionProblem {
    static constexpr int kMaxTerms = 4;

    const AttentionSpec* spec = nullptr;
    int64_t B = 0, n = 0;
    int64_t decoding_batches = 0;
    RowView query, output, lse;  // rows: row_of(b, i); lse: one float; base null: not asked for
    bool batched = false;        // query, output and lse are [B, S, ...]
    CacheView cache;
    Starts queries_at, keys_at;
    IndexView query_positions, key_begin, key_end;
    ScoreTerm terms[kMaxTerms];
    int num_terms = 0;
    const MaskMap* mask_map = nullptr;      // of the first term; null where it would say nothing
    const UnalignedFloat* sinks = nullptr;  // [H], sink_stride apart
    int64_t sink_stride = 0;
    Dropout dropout;  // of probabilities: plane b * H + h, row i, column t

    int64_t queries(int64_t b) const { return queries_at.length(b); }
    int64_t keys(int64_t b) const { return keys_at.length(b); }
    int64_t row_of(int64_t b, int64_t i) const { return batched ? i : queries_at.begin(b) + i; }
    // Position of query i, for causal masks, ALiBi and windows.
    int64_t position(int64_t b, int64_t i) const;
    // Keys that query i of sequence b sees: all but what terms hide, of which the map knows a part.
    KeyRange visible(int64_t b, int64_t i) const;
    // The same for queries first .. last: keys that one of them sees, and that all see.
    void visible(int64_t b, int64_t first, int64_t last, KeyRange* any, KeyRange* all) const;
    // Of keys begin .. begin + count: those that query i sees, counted from begin.
    KeyRange visible_in(int64_t b, int64_t i, int64_t begin, int64_t count) const;
    BlockView look(int64_t b, int64_t first, int64_t last, int64_t begin, int64_t count) const;
    bool is_seen(int64_t b, int64_t first, int64_t last, int64_t begin, int64_t count) const;  // look().seen
    float sink(int head) const { return sinks[head * sink_stride]; }
    // Drops among the probabilities that query i, head h gives keys begin .. begin + count.
    void drop(int64_t b, int64_t i, int h, int64_t begin, int64_t count, float* probabilities,
              int64_t stride) const {
        dropout.apply(uint32_t(b * spec->H + h), uint32_t(i), begin, count, probabilities, stride);
    }
    void add_term(const ScoreTerm& term) { terms[num_terms++] = term; }
    // Whether terms tell the heads of a query apart.
    bool has_terms_by_head() const {
        return std::any_of(terms, terms + num_terms,
                           [](const ScoreTerm& term) { return term.head_stride != 0 || term.slopes; });
    }
    int64_t map_row(int64_t b, int64_t i) const { return mask_map->row(b, i, queries_at.begin(b) + i); }
};

// Adds what `term` says of query i, head h and keys begin .. begin + count to out[0 .. count]; hidden: -Inf.
void add_term(const AttentionProblem& problem, const ScoreTerm& term, int64_t b, int64_t i, int h,
              int64_t begin, int64_t count, float* out);
// The numbers of its type, side by side, that it adds to keys from `begin` on; null where it is more than
// that.
const char* numbers_of(const AttentionProblem& problem, const ScoreTerm& term, int64_t b, int64_t i, int h,
                       int64_t begin);

// Angles of a rotary embedding, by position.
struct Rotary {
    struct Row {
        const float *cos = nullptr, *sin = nullptr;  // [R / 2], at any address
    };
    const char *cos = nullptr, *sin = nullptr;  // [max_pos, R / 2]
    int64_t cos_stride = 0, sin_stride = 0;     // bytes
    explicit operator bool() const { return cos != nullptr; }
    Row row(int64_t position) const {
        return {reinterpret_cast<const float*>(cos + position * cos_stride),
                reinterpret_cast<const float*>(sin + position * sin_stride)};
    }
};

struct AppendProblem {
    const AppendSpec* spec = nullptr;
    int64_t B = 0, n = 0;
    RowView new_key, new_value;
    bool batched = false;  // new_key and new_value are [B, S, ...]
    CacheView cache;
    Starts queries_at;
    IndexView start_pos;  // none: 0
    Rotary rotary;
    IndexView positions;  // [n] or [B, S]: for the rotary embedding; none: those in the cache

    int64_t queries(int64_t b) const { return queries_at.length(b); }
    int64_t row_of(int64_t b, int64_t i) const { return batched ? i : queries_at.begin(b) + i; }
    int64_t first_position(int64_t b) const { return start_pos ? start_pos(b) : 0; }
    int64_t position(int64_t b, int64_t i) const {
        if (!positions) return first_position(b) + i;
        return batched ? positions(b, i) : positions(queries_at.begin(b) + i);
    }
};

// Reads a cache back: every position's key and value, dequantised.
struct ReadProblem {
    const ReadSpec* spec = nullptr;
    int64_t B = 0;
    CacheView cache;
    Starts keys_at;
    RowView key, value;    // written
    bool batched = false;  // key and value are [B, T, ...]

    int64_t keys(int64_t b) const { return keys_at.length(b); }
    int64_t row_of(int64_t b, int64_t t) const { return batched ? t : keys_at.begin(b) + t; }
};

// No operator of the C API by itself, hence no struct there. Names in messages are those of PMX
// KeyValueCache.
struct ReadArgs {
    int64_t B;
    CacheTensors cache;
    const quire_tensor* kvstarts;     // [B + 1]; null where the cache is batched
    const quire_tensor *key, *value;  // [kvstarts[B], Hk * repeat, D] or [B, T, Hk * repeat, D], written
};

Status make_attention_problem(const AttentionSpec& spec, const quire_attention_args& args,
                              AttentionProblem* problem);
Status make_append_problem(const AppendSpec& spec, const quire_append_args& args, AppendProblem* problem);
// Positions and tables of a rotary embedding, for a problem that has all else.
struct RotaryTensors {
    const quire_tensor *positions, *cos, *sin;
};
Status check_rotary(const RotaryTensors& tensors, AppendProblem* problem);
Status make_read_problem(const ReadSpec& spec, const ReadArgs& args, ReadProblem* problem);

// ---- pieces that operators with tensors of their own need ----

// A term read from a tensor of rank 2 to 4: its last dimensions are (batch, head,) row, column; length 1
// broadcasts.
ScoreTerm tensor_term(ScoreTerm::Kind kind, const quire_tensor& tensor);

}  // namespace quire
