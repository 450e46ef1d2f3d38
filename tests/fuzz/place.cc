#include <algorithm>
#include <cstring>

#include "src/format.h"
#include "tests/fuzz/call.h"

namespace quire::fuzz {
namespace {

int bits_of(quire_type type) {
    switch (int(type)) {
        case QUIRE_F32:
        case QUIRE_INT32: return 32;
        case QUIRE_F16:
        case QUIRE_BF16: return 16;
        case QUIRE_INT4: return 4;
        case QUIRE_INT64: return 64;
        default: return block_info(type) ? 9 : 8;  // of blocks at most
    }
}

// body(bit offset from `data`) for each element, of at most `most` of them, in row-major order.
template <typename Body>
void for_each_element(const quire_tensor& view, size_t most, const Body& body) {
    const int rank = std::clamp(view.rank, 0, QUIRE_MAX_RANK);
    for (int d = 0; d < rank; ++d)
        if (view.shape[d] <= 0) return;
    int64_t index[QUIRE_MAX_RANK] = {};
    for (size_t count = 0; count < most; ++count) {
        int64_t at = 0;
        for (int d = 0; d < rank; ++d) at += index[d] * (view.shape[d] > 1 ? view.strides[d] : 0);
        body(at * bits_of(view.type));
        int d = rank - 1;
        while (d >= 0 && ++index[d] == view.shape[d]) index[d--] = 0;
        if (d < 0) return;
    }
}

// Finite numbers of about 1; codes are any bytes. One tensor in 16 holds any bits: NaN, Inf, subnormals.
void fill(quire_type type, uint8_t* data, size_t bytes, Source& source) {
    uint64_t keep = ~uint64_t(0), set = 0;
    const bool wild = source.chance(16);
    if (!wild && type == QUIRE_F32) keep = 0x807fffff807fffff, set = 0x3f0000003f000000;
    if (!wild && type == QUIRE_F16) keep = 0x83ff83ff83ff83ff, set = 0x3800380038003800;
    if (!wild && type == QUIRE_BF16) keep = 0x807f807f807f807f, set = 0x3f003f003f003f00;
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = (source.bits() & keep) | set;
        std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
    }
}

void store_integers(const std::vector<int64_t>& values, const quire_tensor& view, uint8_t* element0) {
    size_t i = 0;
    const size_t bytes = size_t(bits_of(view.type)) / 8;
    if (bytes == 0) return;
    for_each_element(view, values.size(), [&](int64_t bit) {
        const int64_t value = values[i++];
        if (view.type == QUIRE_F32 || view.type == QUIRE_F16) {
            store_number(view.type, element0 + bit / 8, 0, float(value));
        } else {
            std::memcpy(element0 + bit / 8, &value, bytes);
        }
    });
}

std::vector<uint8_t> bytes_of_elements(const quire_tensor& view, int64_t before, size_t bytes,
                                       bool unaligned) {
    std::vector<uint8_t> mask(bytes, 0);
    size_t elements = 1;  // far more than bytes, where a stride is 0
    for (int d = 0; d < std::clamp(view.rank, 0, QUIRE_MAX_RANK); ++d)
        elements =
            size_t(std::min<__int128>(__int128(elements) * std::max<int64_t>(view.shape[d], 0), 1 << 24));
    if (elements > 2 * bytes + 2) return std::vector<uint8_t>(bytes, 1);
    const size_t width = std::max<size_t>(size_t(bits_of(view.type)) / 8, 1);
    for_each_element(view, SIZE_MAX, [&](int64_t bit) {
        const size_t at = size_t(before + bit / 8) + (unaligned ? 1 : 0);
        for (size_t i = 0; i < width && at + i < bytes; ++i) mask[at + i] = 1;
    });
    return mask;
}

}  // namespace

bool extent(const quire_tensor& view, int64_t* before, int64_t* past) {
    *before = *past = 0;
    const int rank = std::clamp(view.rank, 0, QUIRE_MAX_RANK);
    __int128 low = 0, high = 1;
    constexpr __int128 kFar = __int128(1) << 60;
    for (int d = 0; d < rank; ++d)
        if (view.shape[d] <= 0) return true;
    for (int d = 0; d < rank; ++d) {
        const __int128 reach = view.shape[d] > 1 ? __int128(view.shape[d] - 1) * view.strides[d] : 0;
        (reach < 0 ? low : high) += reach;
        if (low < -kFar || high > kFar) return false;
    }
    *before = int64_t((-low * bits_of(view.type) + 7) / 8);
    *past = int64_t((high * bits_of(view.type) + 7) / 8);
    return true;
}

bool place(const Call& call, Source& source, Memory* memory, Placed* placed) {
    memory->reset();
    const auto copy = [&](const std::vector<uint8_t>& bytes) {
        uint8_t* data = memory->take((bytes.size() + 7) / 8 * 8, Flush::end);  // structs are aligned
        std::copy(bytes.begin(), bytes.end(), data);
        return data;
    };
    placed->may_change.assign(3 + call.arguments.size(), {});
    uint8_t *desc = copy(call.desc), *args = copy(call.args);
    placed->desc = desc;
    placed->args = args;
    auto* views = reinterpret_cast<quire_tensor*>(
        memory->take(call.arguments.size() * sizeof(quire_tensor), Flush::end));
    const Flush first = source.chance(128) ? Flush::end : Flush::begin;
    for (size_t i = 0; i < call.arguments.size(); ++i) {
        const Argument& a = call.arguments[i];
        const Flush flush = i % 2 == 0 ? first : first == Flush::end ? Flush::begin : Flush::end;
        int64_t before = 0, past = 0;
        const quire_tensor* backed = &a.view;
        // What no machine can hold gets the memory that was meant for it: it must be refused, or not be read.
        if (!extent(a.view, &before, &past) || size_t(before + past) > Memory::kMost - 8) {
            backed = &a.intended;
            extent(*backed, &before, &past);
            if (size_t(before + past) > Memory::kMost - 8) return false;
        }
        const size_t shift = a.unaligned ? 1 : 0, bytes = size_t(before + past) + shift;
        uint8_t* data = memory->take(a.given ? bytes : 0, flush);
        uint8_t* element0 = data + before + shift;
        if (a.given) {
            fill(a.view.type, data, bytes, source);
            if (!a.values.empty()) store_integers(a.values, *backed, element0);
            if (a.role == Role::written && past > 0)
                placed->may_change[3 + i] = bytes_of_elements(*backed, before, bytes, a.unaligned);
        }
        views[i] = a.view;
        views[i].data = a.null_data ? nullptr : element0;
        const quire_tensor* pointer = a.given ? &views[i] : nullptr;
        const size_t size = a.in_desc ? call.desc.size() : call.args.size();
        if (a.offset < size)  // a shorter struct may end within a pointer
            std::memcpy((a.in_desc ? desc : args) + a.offset, &pointer,
                        std::min(sizeof pointer, size - a.offset));
    }
    return true;
}

std::string describe(const Call& call) {
    std::string text = std::string(call.functions.name) + "\n";
    for (const std::string& mistake : call.mistakes) text += "  mistake: " + mistake + "\n";
    text += "  desc, as int32:";
    for (size_t i = 8; i + 4 <= call.desc.size(); i += 4) {
        int32_t word;
        std::memcpy(&word, call.desc.data() + i, sizeof word);
        text += " " + std::to_string(word);
    }
    for (const Argument& a : call.arguments) {
        text += std::string("\n  ") + a.name + ": ";
        if (!a.given) {
            text += "NULL";
            continue;
        }
        text += "type " + std::to_string(int(a.view.type)) + " shape";
        const int rank = std::clamp(a.view.rank, 0, QUIRE_MAX_RANK);
        for (int d = 0; d < rank; ++d) text += " " + std::to_string(a.view.shape[d]);
        text += " strides";
        for (int d = 0; d < rank; ++d) text += " " + std::to_string(a.view.strides[d]);
        if (!a.values.empty()) text += " values";
        for (int64_t value : a.values) text += " " + std::to_string(value);
        if (a.unaligned) text += " unaligned";
        if (a.null_data) text += " null data";
    }
    return text + "\n";
}

}  // namespace quire::fuzz
