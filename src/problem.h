// A checked, defaulted, size-resolved view of one call. Everything that a caller can get wrong is checked here;
// after it, code assumes. Letters as in quire.h; strides are in bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "src/format.h"
#include "src/status.h"

namespace quire {

// ---- what a descriptor says, checked and with its defaults filled in ----

struct AttentionSpec {
    int H, Hk, D, Dv;
    quire_type type;  // of query and output
    quire_format key_format, value_format;
    float scale;
    bool causal, alibi, top_left;
    int64_t window_left, window_right;  // < 0: no bound
    float soft_cap;                     // 0: none
    int64_t page_size;                  // 0: offsets
    quire_precision precision;
    int group() const { return H / Hk; }  // query heads that share a kv head
};

struct AppendSpec {
    int Hk, D, Dv;
    quire_type type;
    quire_format key_format, value_format;
    int64_t page_size;
};

// Names the field of the descriptor in its message.
Status check_attention_desc(const quire_attention_desc& desc, AttentionSpec* spec);
Status check_append_desc(const quire_append_desc& desc, AppendSpec* spec);
Status check_format(const char* name, const quire_format& format, int dim);
Status check_range(const char* name, int64_t value, int64_t low, int64_t high);

// ALiBi slope of each query head (golden README: powers of two first, then the odd steps between).
std::vector<float> alibi_slopes(int H);

// ---- views of tensors ----

struct RowView {  // one head's vector of a row
    char* base = nullptr;
    int64_t row_stride = 0, head_stride = 0;
    int64_t batch_stride = 0;  // 0: rows are numbered over all sequences
    char* at(int64_t row, int64_t head) const { return base + row * row_stride + head * head_stride; }
    char* at(int64_t b, int64_t row, int64_t head) const { return at(row, head) + b * batch_stride; }
};

struct IndexView {  // int64 [a] or [a, b]
    const int64_t* base = nullptr;
    int64_t stride0 = 0, stride1 = 0;  // in elements
    int64_t operator()(int64_t i) const { return base[i * stride0]; }
    int64_t operator()(int64_t i, int64_t j) const { return base[i * stride0 + j * stride1]; }
    explicit operator bool() const { return base != nullptr; }
};

// Where sequences begin in a packed dimension: given, or all of one length.
struct Starts {
    IndexView given;
    int64_t uniform = 0;  // length of each sequence where not given
    int64_t begin(int64_t b) const { return given ? given(b) : b * uniform; }
    int64_t length(int64_t b) const { return given ? given(b + 1) - given(b) : uniform; }
};

// Something that is added to scores, or hides keys, by a tensor or a range. An operator may have several.
struct ScoreTerm {
    enum Kind {
        add,            // x; -Inf hides
        hide_where_zero,
        add_where_zero, // a where x is 0
        affine,         // a * x + b
        tree,           // hides new key j where bit j is not set
        add_outside     // a where t is outside begin[b] .. end[b]
    };
    Kind kind = add;
    const char* base = nullptr;
    quire_type type = QUIRE_NONE;
    int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;  // 0: broadcast
    bool packed = false;  // rows are tokens of all sequences, columns kvstarts(b) + t
    float a = 0, b = 0;
    IndexView begin, end;  // add_outside
};

// Rows of keys and values and where each position of a sequence is.
struct CacheView {
    RowView key, value, key_scale, value_scale;
    IndexView starts;       // [B] or [B, MaxP]; none: position t is row t of the sequence
    int64_t page_size = 0;  // 0: offsets
    int64_t row(int64_t b, int64_t t) const {
        if (!starts) return t;
        return page_size == 0 ? starts(b) + t : starts(b, t / page_size) + t % page_size;
    }
};

// Where one query's visible keys are.
struct KeyRange {
    int64_t begin, end;
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
    const float* sinks = nullptr;  // [H], sink_stride apart
    int64_t sink_stride = 0;

    int64_t queries(int64_t b) const { return queries_at.length(b); }
    int64_t keys(int64_t b) const { return keys_at.length(b); }
    int64_t row_of(int64_t b, int64_t i) const { return batched ? i : queries_at.begin(b) + i; }
    // Position of query i, for causal masks, ALiBi and windows.
    int64_t position(int64_t b, int64_t i) const;
    // Keys that query i of sequence b sees, before any term.
    KeyRange visible(int64_t b, int64_t i) const;
    float sink(int head) const { return sinks[head * sink_stride]; }
    void add_term(const ScoreTerm& term) { terms[num_terms++] = term; }
};

// Adds what `term` says of query i, head h and keys begin .. begin + count to out[j * stride]; hidden: -Inf.
void add_term(const AttentionProblem& problem, const ScoreTerm& term, int64_t b, int64_t i, int h, int64_t begin,
              int64_t count, float* out, int64_t stride);

struct AppendProblem {
    const AppendSpec* spec = nullptr;
    int64_t B = 0, n = 0;
    RowView new_key, new_value;
    CacheView cache;
    Starts queries_at;
    IndexView start_pos;
};

Status make_attention_problem(const AttentionSpec& spec, const quire_attention_args& args,
                              AttentionProblem* problem);
Status make_append_problem(const AppendSpec& spec, const quire_append_args& args, AppendProblem* problem);

// ---- pieces that operators with tensors of their own need ----

constexpr int64_t kAny = -1;  // any length of a dimension

// A term read from a tensor of rank 2 to 4: its last dimensions are (batch, head,) row, column; length 1 broadcasts.
ScoreTerm tensor_term(ScoreTerm::Kind kind, const quire_tensor& tensor);

// Type, rank, shape, data and extent. `letters` is the documented shape ("[n, H, D]"), for the message.
Status check_tensor(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                    const std::vector<int64_t>& shape);
// B from [B + 1] starts that begin at 0 and do not decrease; the last is `total` (kAny: any).
Status check_starts(const char* name, const quire_tensor* tensor, int64_t B, int64_t total, IndexView* view);
Status check_index(const char* name, const quire_tensor* tensor, const char* letters,
                   const std::vector<int64_t>& shape, IndexView* view);

}  // namespace quire
