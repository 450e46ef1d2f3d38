// Views of other strides, and mistakes.
#include <algorithm>
#include <climits>
#include <cstring>

#include "src/format.h"
#include "tests/fuzz/call.h"

namespace quire::fuzz {
namespace {

constexpr int64_t kHuge = int64_t(1) << 58;  // as a length or a stride of more than one element: refused

bool is_index(const Argument& a) {
    return a.view.type == QUIRE_INT64 || a.view.type == QUIRE_INT32 || !a.values.empty();
}

std::string text(int64_t value) { return std::to_string(value); }

// ---- mistakes in one tensor ----

std::string null_pointer(Source&, Argument* a) {
    a->given = false;
    return "NULL";
}

std::string null_data(Source&, Argument* a) {
    a->null_data = true;
    return "null data";
}

std::string other_type(Source& source, Argument* a) {
    const int64_t type = source.pick<int64_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99, -1, INT_MIN});
    a->view.type = quire_type(type);
    return "type " + text(type);
}

std::string other_rank(Source& source, Argument* a) {
    const int rank = int(source.pick<int64_t>({-1, 0, 1, 2, 3, 4, 5, 6, 8, 9, 100, INT_MAX, INT_MIN}));
    for (int d = std::max(a->view.rank, 0); d < std::min(rank, QUIRE_MAX_RANK); ++d)
        a->view.shape[d] = a->view.strides[d] = 1;
    a->view.rank = rank;
    return "rank " + text(rank);
}

std::string other_length(Source& source, Argument* a) {
    const int rank = std::clamp(a->view.rank, 0, QUIRE_MAX_RANK);
    if (rank == 0) return "";
    const int d = int(source.between(0, rank - 1));
    int64_t& length = a->view.shape[d];
    const int64_t old = std::clamp<int64_t>(length, -1, 1000);
    // A list of indices is read to its end, so that its length must be true, or refused.
    const int64_t far = is_index(*a) && rank == 1 ? kHuge : int64_t(1) << 40;
    // One too few or too many is the mistake that a check most likely misses.
    length = source.pick<int64_t>({old - 1, old - 1, old - 1, old - 1, old + 1, old + 1, old + 1, old * 2, 0,
                                   1, -1, INT64_MIN, far, kHuge, int64_t(1) << 62, INT64_MAX});
    return "length " + text(length) + " in dimension " + text(d);
}

std::string other_stride(Source& source, Argument* a) {
    const int rank = std::clamp(a->view.rank, 0, QUIRE_MAX_RANK);
    if (rank == 0) return "";
    const int d = int(source.between(0, rank - 1));
    int64_t& stride = a->view.strides[d];
    const int64_t old = std::clamp<int64_t>(stride, -4096, 4096);
    stride = source.pick<int64_t>({0, -old, old + 1, old * 2, 1, 2, kHuge, -kHuge, INT64_MAX, INT64_MIN});
    return "stride " + text(stride) + " in dimension " + text(d);
}

std::string other_value(Source& source, Argument* a) {
    if (a->values.empty()) return "";
    const size_t i = size_t(source.between(0, std::min<int64_t>(int64_t(a->values.size()), 256) - 1));
    int64_t& value = a->values[i];
    const uint64_t old = uint64_t(value);
    value = source.pick<int64_t>({int64_t(old - 1), int64_t(old - 1), int64_t(old + 1), int64_t(old + 1),
                                  int64_t(old + 1), int64_t(old * 2), -1, 0, 1, 64, int64_t(1) << 31,
                                  int64_t(1) << 40, INT64_MAX, INT64_MAX - 1, INT64_MIN,
                                  a->values[(i + 1) % a->values.size()]});
    return "value " + text(value) + " at " + text(int64_t(i));
}

// ---- mistakes in structs ----

// `whole` is the struct's own size: `bytes` may be shorter since a mistake before.
std::string other_size(Source& source, size_t whole, std::vector<uint8_t>* bytes) {
    const size_t size = source.pick<size_t>({0, 4, 7, 8, 9, 12, 16, 24, whole - 4, whole - 8, whole - 16,
                                             size_t(source.between(0, int64_t(whole))), whole + 1, whole + 8,
                                             whole + 64, 65536, 65537, SIZE_MAX});
    // Past the struct: zeros, or not all of them.
    if (size <= 65536) bytes->resize(std::max(size, sizeof size), 0);
    if (size > whole && size <= 65536 && source.chance(128)) bytes->back() = 1;
    std::memcpy(bytes->data(), &size, sizeof size);
    return "struct_size " + std::to_string(size);
}

std::string other_field(Source& source, std::vector<uint8_t>* desc) {
    const int64_t words = int64_t(desc->size()) / 4 - 2;
    if (words < 1) return "";
    const int64_t word = source.between(0, words - 1);
    int32_t value;
    std::memcpy(&value, desc->data() + 8 + 4 * word, sizeof value);
    const auto near = [&](int by) { return int32_t(uint32_t(value) + uint32_t(by)); };
    value = source.pick<int32_t>({0,       1,       -1,         2,          3,          4,       5,
                                  8,       9,       16,         1024,       1025,       1 << 20, 1 << 30,
                                  INT_MAX, INT_MIN, 0x7fc00000, 0x7f800000, 0x3f800000, near(1), near(-1)});
    std::memcpy(desc->data() + 8 + 4 * word, &value, sizeof value);
    return "desc field " + text(word) + " = " + text(value);
}

std::string other_scalar(Source& source, Call* call) {
    if (call->scalars.empty()) return "";
    const size_t at = call->scalars[size_t(source.between(0, int64_t(call->scalars.size()) - 1))];
    const int64_t value = source.pick<int64_t>({-1, 1, 2, 3, 100, INT64_MAX, INT64_MIN});
    if (at + sizeof value <= call->args.size()) std::memcpy(call->args.data() + at, &value, sizeof value);
    return "scalar at byte " + text(int64_t(at)) + " = " + text(value);
}

std::string in_call(Source& source, Call* call) {
    switch (source.between(0, 9)) {
        case 0: return "args " + other_size(source, call->args_size, &call->args);
        case 1: return "desc " + other_size(source, call->desc_size, &call->desc);
        case 2: call->null_plan = true; return "NULL plan";
        case 3: call->null_desc = true; return "NULL desc";
        case 4: call->null_args = true; return "NULL args";
        case 5:
        case 6: return other_scalar(source, call);
        default: return other_field(source, &call->desc);
    }
}

std::string in_tensor(Source& source, Call* call) {
    using Mistake = std::string (*)(Source&, Argument*);
    Argument& a = call->arguments[size_t(source.between(0, int64_t(call->arguments.size()) - 1))];
    if (source.chance(16)) {  // the shape of another one
        const Argument& other =
            call->arguments[size_t(source.between(0, int64_t(call->arguments.size()) - 1))];
        a.view = other.view;
        return std::string(a.name) + " looks like " + other.name;
    }
    const auto mistake =
        source.pick<Mistake>({null_pointer, null_data, other_type, other_rank, other_length, other_length,
                              other_stride, other_stride, other_value, other_value, other_value});
    const std::string what = mistake(source, &a);
    return what.empty() ? what : std::string(a.name) + " has " + what;
}

// A length of one tensor, in all tensors that have it: they still agree with each other.
std::string everywhere(Source& source, Call* call) {
    const Argument& a = call->arguments[size_t(source.between(0, int64_t(call->arguments.size()) - 1))];
    const int rank = std::clamp(a.view.rank, 0, QUIRE_MAX_RANK);
    if (rank == 0) return "";
    const int64_t from = a.view.shape[source.between(0, rank - 1)];
    const int64_t to = source.pick<int64_t>(
        {0, 0, 1, std::clamp<int64_t>(from, 0, 1000) + 1, int64_t(1) << 40, int64_t(1) << 62});
    for (Argument& other : call->arguments)
        for (int d = 0; d < std::clamp(other.view.rank, 0, QUIRE_MAX_RANK); ++d)
            if (other.view.shape[d] == from) other.view.shape[d] = to;
    return "all lengths " + text(from) + " are " + text(to);
}

// A view of more than there is. It must be refused for its size; or it only has more rows or columns than
// were meant for it, which no call reads. (One that was to be broadcast would be read, and so would indices,
// and a tensor that no other one holds to its lengths.)
bool may_claim(const Argument& a) {
    const quire_tensor &view = a.view, &meant = a.intended;
    bool within = !is_index(a) && !a.alone && view.rank == meant.rank && view.type == meant.type;
    for (int d = 0; d < std::clamp(view.rank, 0, QUIRE_MAX_RANK); ++d) {
        const int64_t n = view.shape[d], stride = view.strides[d];
        if (n >= kHuge || (n > 1 && (stride >= kHuge || stride <= -kHuge))) return true;
        within &= stride == meant.strides[d] && (n <= meant.shape[d] || meant.shape[d] > 1);
    }
    return within;
}

bool fits(const quire_tensor& view) {
    int64_t before, past;
    return extent(view, &before, &past) && before + past <= int64_t(Memory::kMost) - 8;
}

// Of stride 0, it has room for any number of rows.
bool is_endless(const Argument& a) {
    const int64_t* shape = a.view.shape;
    const int64_t* past = shape + std::clamp(a.view.rank, 0, QUIRE_MAX_RANK);
    return fits(a.view) && std::any_of(shape, past, [](int64_t n) { return n > int64_t(Memory::kMost); });
}

// Strides of a tensor whose dimensions lie in memory in another order, with gaps between rows.
void vary_strides(Source& source, Argument* a) {
    quire_tensor& view = a->view;
    int order[QUIRE_MAX_RANK];
    for (int d = 0; d < view.rank; ++d) order[d] = d;
    for (int d = view.rank - 2; d > 0; --d) std::swap(order[d], order[source.between(0, d)]);
    int64_t stride = is_index(*a) && source.chance(128) ? 2 : 1;
    const int64_t whole = std::max(2, type_size(view.type).elements);
    for (int i = view.rank - 1; i >= 0; --i) {
        const int d = order[i];
        view.strides[d] = view.shape[d] == 1 && source.chance(64) ? INT64_MIN : stride;
        stride = stride * view.shape[d] + whole * source.between(0, 2);
    }
    const bool flip = view.rank > 1 && view.strides[0] != INT64_MIN && source.chance(32);
    if (flip) view.strides[0] = -view.strides[0];
    if (a->role == Role::input && !is_index(*a) && view.rank > 1 && source.chance(16)) view.strides[0] = 0;
}

}  // namespace

void vary_views(Source& source, Call* call) {
    for (Argument& a : call->arguments) {
        a.unaligned = source.chance(32);
        const quire_tensor dense = a.view;
        if (a.view.rank > 0 && source.chance(96)) vary_strides(source, &a);
        // The last dimension's stride must be 1 even where its length is 1 after a mistake.
        if (!fits(a.view)) a.view = dense;
        a.intended = a.view;
    }
}

void make_mistakes(Source& source, Call* call) {
    const int count = int(source.pick<int64_t>({1, 1, 1, 1, 1, 2, 2, 3}));
    for (int i = 0; i < count; ++i) {
        const bool structs = call->functions.plan != nullptr && source.chance(64);
        const std::string what = structs             ? in_call(source, call)
                                 : source.chance(32) ? everywhere(source, call)
                                                     : in_tensor(source, call);
        if (!what.empty()) call->mistakes.push_back(what);
    }
    // One tensor may claim more than there is; two might agree with each other, and so might one of stride 0.
    bool claimed = std::any_of(call->arguments.begin(), call->arguments.end(), is_endless);
    for (Argument& a : call->arguments) {
        if (fits(a.view)) continue;
        if (claimed || !may_claim(a)) a.view = a.intended;
        claimed = true;
    }
}

}  // namespace quire::fuzz
