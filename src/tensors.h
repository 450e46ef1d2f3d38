// Views of the caller's tensors, and the checks that make them. Strides of rows are in bytes, of indices in
// elements.
#pragma once
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "src/format.h"
#include "src/status.h"

namespace quire {

constexpr int64_t kAny = -1;  // any length of a dimension

// Lengths of dimensions. Not a vector: a call in a steady state allocates nothing.
class Shape {
public:
    Shape(std::initializer_list<int64_t> lengths) {
        for (int64_t length : lengths) push_back(length);
    }
    void push_back(int64_t length) {
        assert(rank_ < QUIRE_MAX_RANK);
        lengths_[rank_++] = length;
    }
    int rank() const { return rank_; }
    int64_t& operator[](int i) { return lengths_[i]; }
    int64_t operator[](int i) const { return lengths_[i]; }

private:
    int rank_ = 0;
    int64_t lengths_[QUIRE_MAX_RANK] = {};
};

struct RowView {  // one head's vector of a row
    char* base = nullptr;
    int64_t row_stride = 0, head_stride = 0;
    int64_t batch_stride = 0;  // 0: rows are numbered over all sequences
    int block_shift = 0;  // 2^block_shift rows are a block, at one address, and row_stride is that of blocks
    char* at(int64_t row, int64_t head) const {
        return base + (row >> block_shift) * row_stride + head * head_stride;
    }
    char* at(int64_t b, int64_t row, int64_t head) const { return at(row, head) + b * batch_stride; }
};

struct IndexView {  // int64 [], [a] or [a, b]
    const UnalignedInt64* base = nullptr;
    int64_t stride0 = 0, stride1 = 0;
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

// "f16"; the number of a type that quire.h does not have.
std::string type_text(quire_type type);
// "[2, 3]"
std::string shape_text(const quire_tensor& tensor);
// A length of 0 in any dimension.
bool is_empty(const quire_tensor& tensor);
// 0 where it does not count.
int64_t stride_bytes(const quire_tensor& tensor, int dimension);
// Of [rows, heads, ...], or of [B, rows, heads, ...] with `batched`.
RowView row_view(const quire_tensor& tensor, bool batched);

// Sequences in a tensor [B, ...], which may be empty and say anything.
constexpr int64_t kMaxBatch = int64_t(1) << 24;
Status check_batch(const char* name, int64_t B);
Status check_range(const char* name, int64_t value, int64_t low, int64_t high);
// Type, rank, shape, data and extent. `letters` is the documented shape ("[n, H, D]"), for the message.
Status check_tensor(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                    const Shape& shape);
// Rows of heads, of rank 3 or 4: the last dimension is contiguous, and rows begin at whole bytes or blocks.
Status check_rows(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                  const Shape& shape, RowView* view);
Status check_contiguous(const char* name, const quire_tensor& tensor);
// Of a tensor that is written: no stride puts elements on each other.
Status check_written(const char* name, const quire_tensor& tensor);
Status check_index(const char* name, const quire_tensor* tensor, const char* letters, const Shape& shape,
                   IndexView* view);
// B from [B + 1] starts that begin at 0 and do not decrease; the last is `total` (kAny: any).
Status check_starts(const char* name, const quire_tensor* tensor, int64_t B, int64_t total, IndexView* view);
// The same for `seqstarts`, which says B: without it one sequence of all n tokens.
Status check_sequences(const quire_tensor* seqstarts, int64_t n, IndexView* view, int64_t* B);

}  // namespace quire
