#include "src/tensors.h"

#include <limits>

namespace quire {
namespace {

// In elements: sizes and distances in bits must fit too.
constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 64;

// *sum += a * b; false where that is past kMost on either side.
bool add_product(int64_t a, int64_t b, int64_t* sum) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product > kMost || product < -kMost) return false;
    *sum += product < 0 ? -product : product;
    return *sum <= kMost;
}

// The furthest element from the first, in bits, must be addressable.
Status check_extent(const char* name, const quire_tensor& tensor) {
    if (is_empty(tensor)) return {};  // its strides and data mean nothing
    int64_t elements = 1, reach = 0;
    for (int i = 0; i < tensor.rank; ++i)
        if (__builtin_mul_overflow(elements, tensor.shape[i], &elements) || elements > kMost)
            return invalid("%s has shape %s: its size must fit in 63 bits", name, shape_text(tensor).c_str());
    for (int i = 0; i < tensor.rank; ++i)
        if (tensor.shape[i] > 1 && !add_product(tensor.shape[i] - 1, tensor.strides[i], &reach))
            return invalid("%s has stride %lld in dimension %d: its extent must fit in 63 bits", name,
                           (long long)tensor.strides[i], i);
    if (tensor.data == nullptr)
        return invalid("%s has null data: must point at %s elements", name, shape_text(tensor).c_str());
    return {};
}

}  // namespace

std::string type_text(quire_type type) {
    return type == QUIRE_NONE || type_size(type).elements != 0 ? type_name(type) : std::to_string(int(type));
}

std::string shape_text(const quire_tensor& tensor) {
    std::string text = "[";
    for (int i = 0; i < tensor.rank; ++i) text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
    return text + "]";
}

bool is_empty(const quire_tensor& tensor) {
    for (int i = 0; i < tensor.rank; ++i)
        if (tensor.shape[i] == 0) return true;
    return false;
}

int64_t stride_bytes(const quire_tensor& tensor, int dimension) {
    // An empty tensor's strides were not checked, and may not be addressable.
    if (tensor.shape[dimension] <= 1 || is_empty(tensor)) return 0;
    return bytes_of(tensor.type, tensor.strides[dimension]);
}

RowView row_view(const quire_tensor& t, bool batched) {
    const auto stride = [&](int i) { return stride_bytes(t, i); };
    const int row = batched ? 1 : 0;
    return {static_cast<char*>(t.data), stride(row), stride(row + 1), batched ? stride(0) : 0};
}

Status check_batch(const char* name, int64_t B) {
    if (B <= kMaxBatch) return {};
    return invalid("%s has %lld sequences: must have at most %lld", name, (long long)B, (long long)kMaxBatch);
}

Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        return invalid("%s is %lld: must be %lld to %lld", name, (long long)value, (long long)low,
                       (long long)high);
    return {};
}

Status check_tensor(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                    const Shape& shape) {
    if (tensor == nullptr) return invalid("%s is NULL: must be a tensor %s", name, letters);
    if (tensor->type != type)
        return invalid("%s has type %s: must be %s", name, type_text(tensor->type).c_str(), type_name(type));
    if (tensor->rank != shape.rank())
        return invalid("%s has rank %d: must be %d, %s", name, tensor->rank, shape.rank(), letters);
    for (int i = 0; i < tensor->rank; ++i) {
        const int64_t wanted = shape[i], got = tensor->shape[i];
        if (got < 0)
            return invalid("%s has length %lld in dimension %d: must be >= 0", name, (long long)got, i);
        if (wanted != kAny && got != wanted)
            return invalid("%s has shape %s: dimension %d of %s must be %lld", name,
                           shape_text(*tensor).c_str(), i, letters, (long long)wanted);
    }
    return check_extent(name, *tensor);
}

Status check_contiguous(const char* name, const quire_tensor& tensor) {
    const int last = tensor.rank - 1;
    if (tensor.shape[last] > 1 && tensor.strides[last] != 1)
        return invalid("%s has stride %lld in its last dimension: must be 1", name,
                       (long long)tensor.strides[last]);
    const int whole = type_size(tensor.type).elements;
    for (int i = 0; i < last; ++i)
        if (tensor.shape[i] > 1 && tensor.strides[i] % whole != 0)
            return invalid("%s has stride %lld in dimension %d: must be a multiple of %d for %s", name,
                           (long long)tensor.strides[i], i, whole, type_name(tensor.type));
    return {};
}

Status check_written(const char* name, const quire_tensor& tensor) {
    if (is_empty(tensor)) return {};
    for (int i = 0; i < tensor.rank; ++i)
        if (tensor.shape[i] > 1 && tensor.strides[i] == 0)
            return invalid("%s has stride 0 in dimension %d: must keep its elements apart, it is written",
                           name, i);
    return {};
}

Status check_rows(const char* name, const quire_tensor* tensor, quire_type type, const char* letters,
                  const Shape& shape, RowView* view) {
    QUIRE_TRY(check_tensor(name, tensor, type, letters, shape));
    QUIRE_TRY(check_contiguous(name, *tensor));
    *view = row_view(*tensor, shape.rank() == 4);
    return {};
}

Status check_index(const char* name, const quire_tensor* tensor, const char* letters, const Shape& shape,
                   IndexView* view) {
    QUIRE_TRY(check_tensor(name, tensor, QUIRE_INT64, letters, shape));
    *view = {static_cast<const UnalignedInt64*>(tensor->data), tensor->rank > 0 ? tensor->strides[0] : 0,
             tensor->rank > 1 ? tensor->strides[1] : 0};
    return {};
}

Status check_starts(const char* name, const quire_tensor* tensor, int64_t B, int64_t total, IndexView* view) {
    QUIRE_TRY(check_index(name, tensor, "[B + 1]", {B + 1}, view));
    const IndexView& starts = *view;
    if (starts(0) != 0) return invalid("%s[0] is %lld: must be 0", name, (long long)starts(0));
    for (int64_t b = 0; b < B; ++b)
        if (starts(b + 1) < starts(b))
            return invalid("%s[%lld] is %lld: must be >= %s[%lld], which is %lld", name, (long long)(b + 1),
                           (long long)starts(b + 1), name, (long long)b, (long long)starts(b));
    if (total != kAny && starts(B) != total)
        return invalid("%s[%lld] is %lld: must be n, %lld", name, (long long)B, (long long)starts(B),
                       (long long)total);
    return {};
}

Status check_sequences(const quire_tensor* seqstarts, int64_t n, IndexView* view, int64_t* B) {
    if (seqstarts == nullptr) {
        *B = 1;
        return {};
    }
    QUIRE_TRY(check_tensor("seqstarts", seqstarts, QUIRE_INT64, "[B + 1]", {kAny}));
    *B = seqstarts->shape[0] - 1;
    if (*B < 0) return invalid("seqstarts has shape [0]: must be [B + 1]");
    QUIRE_TRY(check_batch("seqstarts", *B));  // with stride 0 it may say any number
    return check_starts("seqstarts", seqstarts, *B, n, view);
}

}  // namespace quire
