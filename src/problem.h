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
    bool causal, alibi;
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

struct RowView {  // [rows, heads, ...]: address of one head's vector of a row
    char* base = nullptr;
    int64_t row_stride = 0, head_stride = 0;
    char* at(int64_t row, int64_t head) const { return base + row * row_stride + head * head_stride; }
};

struct IndexView {  // int64 [a] or [a, b]
    const int64_t* base = nullptr;
    int64_t stride0 = 0, stride1 = 0;  // in elements
    int64_t operator()(int64_t i) const { return base[i * stride0]; }
    int64_t operator()(int64_t i, int64_t j) const { return base[i * stride0 + j * stride1]; }
    explicit operator bool() const { return base != nullptr; }
};

struct MaskView {  // [H or 1, n, columns]
    const char* base = nullptr;
    quire_type type = QUIRE_NONE;
    int64_t head_stride = 0, row_stride = 0, column_stride = 0;
    explicit operator bool() const { return base != nullptr; }
};

// Rows of keys and values and where each position of a sequence is.
struct CacheView {
    RowView key, value, key_scale, value_scale;
    IndexView starts;       // [B] or [B, MaxP]
    int64_t page_size = 0;  // 0: offsets
    int64_t row(int64_t b, int64_t t) const {
        return page_size == 0 ? starts(b) + t : starts(b, t / page_size) + t % page_size;
    }
};

// Where one query's visible keys are.
struct KeyRange {
    int64_t begin, end;
};

struct AttentionProblem {
    const AttentionSpec* spec = nullptr;
    int64_t B = 0, n = 0;
    int64_t decoding_batches = 0;
    RowView query, output, lse;  // lse: at(token, head) is one float; base null: not asked for
    CacheView cache;
    IndexView seqstarts, kvstarts;
    MaskView mask;
    const float* sinks = nullptr;  // [H], sink_stride apart
    int64_t sink_stride = 0;
    int64_t whole[4] = {};  // backing of seqstarts and kvstarts where the caller gave none

    int64_t queries(int64_t b) const { return seqstarts(b + 1) - seqstarts(b); }
    int64_t keys(int64_t b) const { return kvstarts(b + 1) - kvstarts(b); }
    // Keys that query i of sequence b sees, before any mask tensor.
    KeyRange visible(int64_t b, int64_t i) const;
    float sink(int head) const { return sinks[head * sink_stride]; }
    // The mask's element for token `row` of the batch (head `h`) and key t of sequence b.
    float mask_at(int h, int64_t row, int64_t b, int64_t t) const;
};

struct AppendProblem {
    const AppendSpec* spec = nullptr;
    int64_t B = 0, n = 0;
    RowView new_key, new_value;
    CacheView cache;
    IndexView seqstarts, start_pos;
    int64_t whole[2] = {};
};

Status make_attention_problem(const AttentionSpec& spec, const quire_attention_args& args,
                              AttentionProblem* problem);
Status make_append_problem(const AppendSpec& spec, const quire_append_args& args, AppendProblem* problem);

// ---- pieces that operators with tensors of their own need ----

constexpr int64_t kAny = -1;  // any length of a dimension

// Type, rank, shape, data and extent. `letters` is the documented shape ("[n, H, D]"), for the message.
Status check_tensor(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                    const std::vector<int64_t>& shape);
// B from [B + 1] starts that begin at 0 and do not decrease; the last is `total` (kAny: any).
Status check_starts(const char* name, const quire_tensor* tensor, int64_t B, int64_t total, IndexView* view);
Status check_index(const char* name, const quire_tensor* tensor, const char* letters,
                   const std::vector<int64_t>& shape, IndexView* view);

}  // namespace quire
