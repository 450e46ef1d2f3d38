#include "jit/byte_loader.h"

#include <algorithm>
#include <numeric>

#include "jit/word_loader.h"

namespace quire::jit {
namespace {

constexpr int kWidestPart = 128;  // elements; its code is straight

// ---- codes of eight bits, signed: the top bit flips ----

class BytesLoader : public ByteLoader {
public:
    using ByteLoader::ByteLoader;
    void load_packed(const Vec& v, int chunk, const RegExp& row) override {
        if (!held_.empty() && is_vector(chunk))
            return e_.bit_xor(v, held_.begin()->second, e_.ptr[row + chunk * e_.vec_bytes()]);
        load_signed(&v, chunk, row);
        with(kTopBits, &Emitter::bit_xor, v);
    }
    void load_packed(const Vec& v, const RegExp& low, const RegExp& high) override {
        const int at = place_of(dim_ - half_chunk_bytes());
        e_.load_raw(v, low + at, high + at, half_chunk_bytes());
        with(kTopBits, &Emitter::bit_xor, v);
    }
    void load_signed(const Vec* k, int chunk, const RegExp& row) override {
        const int first = chunk * e_.vec_bytes();
        load_codes(k[0], first, std::min(e_.vec_bytes(), left(first)), row);
    }

protected:
    static constexpr uint32_t kTopBits = 0x80808080;
    std::vector<uint32_t> constants() const override { return {kTopBits}; }
    // A chunk lies in memory as in its vector.
    virtual bool is_vector(int chunk) const { return left(chunk * e_.vec_bytes()) >= e_.vec_bytes(); }
    virtual void load_codes(const Vec& v, int first, int n, const RegExp& row) {
        e_.load_raw(v, row + first, n);
    }
    virtual int place_of(int first) const { return first; }
};

// Q8_0: a chunk is a block, or two.
class ByteBlocksLoader : public BytesLoader {
public:
    using BytesLoader::BytesLoader;

protected:
    bool is_vector(int) const override { return false; }
    void load_codes(const Vec& v, int first, int n, const RegExp& row) override {
        const int at = place_of(first), next = place_of(first + kBlockValues);
        n <= kBlockValues ? e_.load_raw(v, row + at, n) : e_.load_raw(v, row + at, row + next, kBlockValues);
    }
    int place_of(int first) const override {
        const BlockInfo& block = *block_info(format_.type);
        return first / kBlockValues * block.bytes + block.codes_at;
    }
};

// ---- codes of four bits: the first vector has the low nibbles, the second the high ones ----

class NibblesLoader : public ByteLoader {
public:
    using ByteLoader::ByteLoader;
    void unpack(const Vec* k) override {
        e_.vpsrlw(k[1], k[0], 4);
        for (int i = 0; i < 2; ++i) with(kNibbles, &Emitter::bit_and, k[i]);
    }

protected:
    static constexpr uint32_t kNibbles = 0x0f0f0f0f, kTopBits = 0x88888888;
    std::vector<uint32_t> constants() const override { return {kNibbles}; }
};

// INT4, two's complement: byte i is elements 2 i and 2 i + 1.
class PairsLoader : public NibblesLoader {
public:
    using NibblesLoader::NibblesLoader;
    void load_packed(const Vec& v, int chunk, const RegExp& row) override {
        const int first = chunk * 4 * e_.lanes();
        e_.load_raw(v, row + first, std::min(4 * e_.lanes(), left(2 * first) / 2));
        with(kTopBits, &Emitter::bit_xor, v);
    }
    void load_packed(const Vec& v, const RegExp& low, const RegExp& high) override {
        const int n = half_chunk_bytes(), at = dim_ / 2 - n;
        e_.load_raw(v, low + at, high + at, n);
        with(kTopBits, &Emitter::bit_xor, v);
    }

protected:
    std::vector<uint32_t> constants() const override { return {kNibbles, kTopBits}; }
};

// Q4_0: byte i of a block is elements i and i + 16, each with 8 added.
class NibbleBlocksLoader : public NibblesLoader {
public:
    using NibblesLoader::NibblesLoader;
    void load_packed(const Vec& v, int chunk, const RegExp& row) override {
        const int blocks = e_.lanes() / 4, first = chunk * blocks;
        std::vector<RegExp> codes;
        for (int i = first; i < std::min(first + blocks, dim_ / kBlockValues); ++i)
            codes.push_back(row + place_of(i));
        e_.load_quarters(v, codes);
    }
    void load_packed(const Vec& v, const RegExp& low, const RegExp& high) override {
        const int blocks = half_chunk_bytes() / 16, at = place_of(dim_ / kBlockValues - blocks);
        if (blocks == 1) return e_.load_raw(v, low + at, high + at, 16);
        const int next = at + block_info(format_.type)->bytes;
        e_.load_quarters(v, {low + at, low + next, high + at, high + next});
    }

private:
    int place_of(int block) const {
        const BlockInfo& info = *block_info(format_.type);
        return block * info.bytes + info.codes_at;
    }
};

// IQ4_NL: the same, and each nibble is the place of its number in a table.
class TableBlocksLoader : public NibbleBlocksLoader {
public:
    using NibbleBlocksLoader::NibbleBlocksLoader;
    void unpack(const Vec* k) override {
        NibbleBlocksLoader::unpack(k);
        e_.look_up_nibbles({k[0], k[1]}, table(), byte_zero(format_));
    }
    void hold(int most) override {
        if (most < 1) return;
        e_.hold_nibble_table(table(), byte_zero(format_), 0);
        NibbleBlocksLoader::hold(most - 1);
    }

private:
    const int8_t* table() const { return block_info(format_.type)->table; }
};

// ---- codes of five bits: nibbles and a dword of the others, in the order of elements ----

class FifthBitsLoader : public ByteLoader {
public:
    using ByteLoader::ByteLoader;
    void load_packed(const Vec& v, int chunk, const RegExp& row) override {
        std::vector<RegExp> blocks;
        for (int first = chunk * e_.vec_bytes(), i = 0; i < e_.vec_bytes() / kBlockValues; ++i) {
            if (left(first) > 0) blocks.push_back(row + place_of(first));
            first += kBlockValues;
        }
        load(v, blocks);
    }
    void load_packed(const Vec& v, const RegExp& low, const RegExp& high) override {
        const int at = place_of(dim_ - half_chunk_bytes());
        load(v, {low + at, high + at});
    }

protected:
    std::vector<uint32_t> constants() const override { return {}; }

private:
    const BlockInfo& block() const { return *block_info(format_.type); }
    int place_of(int element) const { return element / kBlockValues * block().bytes; }
    void load(const Vec& v, const std::vector<RegExp>& blocks) {
        e_.load_five_bits(v, blocks, block().codes_at, block().high_bits_at);
    }
};

}  // namespace

bool has_bytes(const quire_format& format) {
    if (!has_words(format)) return false;  // numbers of up to eight bits; groups of a multiple of 4
    return !is_of_nibbles(format) || scale_group(format) % 8 == 0;
}

uint8_t byte_zero_bits(const quire_format& format) {
    const BlockInfo* block = block_info(format.type);
    return block && block->high_bits_at ? 4 : has_small_numbers(format) ? 3 : 7;
}

int half_chunk(const quire_format& format, int dim, int lanes) {
    const int left = dim / byte_parts(format) % (4 * lanes);
    return lanes == 16 && (left == 16 || left == 32) ? left : 0;
}

std::vector<int> byte_order(const quire_format& format, int dim, int lanes) {
    const int parts = byte_parts(format), bytes = 4 * lanes, half = half_chunk(format, dim, lanes);
    const bool halves = block_info(format.type) && parts == 2;  // of a block, in low and high nibbles
    std::vector<int> order;
    for (int first = 0; first < dim; first += parts * bytes)
        for (int part = 0; part < parts; ++part)
            for (int byte = 0; byte < bytes; ++byte) {
                const int i = half > 0 && dim - first < parts * bytes ? byte % (bytes / 2) : byte;
                const int element = first + (halves ? i / 16 * 32 + part * 16 + i % 16 : parts * i + part);
                order.push_back(element < dim ? element : -1);
            }
    return order;
}

// Of small numbers, 32 elements of three digits fit one sum: 32 * 8 * kLargestOfThree < 2^31.
// Joined and weighed spans, 128 elements: 16 * 8128 * kLargestFactor < 2^31.
ByteTileForm::ByteTileForm(const quire_format& format, int query_digits, const Target& target)
    : digits(query_digits) {
    const bool small = has_small_numbers(format), whole = digits == 3 && small;
    part = std::gcd(scale_group(format), whole ? 32 : kWidestPart);
    sums = digits == 3 && !whole ? 2 : 1;
    const bool four_pipes = target.vector_bits == 512 && !target.of_intel();  // as src/precision.cc counts
    const bool of_two = digits == 1 && four_pipes && part % (2 * kByteTileSpan) == 0;
    joins = of_two && small;
    shifts = of_two && !small;
    weighs = digits == 1 && !target.vnni && small;
    const int spans = part / kByteTileSpan;
    numbers = joins ? 1 + spans / 2 : shifts || weighs ? 1 + spans : digits == 1 ? 1 + 2 * spans : sums;
}

std::vector<int> byte_tile_order(const quire_format& format, int dim) {
    const int lanes = 8, parts = byte_parts(format), chunk = parts * 4 * lanes;  // any number of lanes
    const std::vector<int> by_vector = byte_order(format, dim, lanes);
    std::vector<int> order;
    for (int i = 0; i < dim; ++i) {
        const int four = i / 4, lane = four / parts % lanes;
        order.push_back(by_vector[size_t(i / chunk * chunk + (four % parts * lanes + lane) * 4 + i % 4)]);
    }
    return order;
}

std::unique_ptr<ByteLoader> ByteLoader::make(Emitter& e, const quire_format& format, int dim) {
    const BlockInfo* const blocks = block_info(format.type);
    if (blocks && blocks->high_bits_at) return std::make_unique<FifthBitsLoader>(e, format, dim);
    if (is_of_nibbles(format)) {
        if (blocks && blocks->table) return std::make_unique<TableBlocksLoader>(e, format, dim);
        if (blocks) return std::make_unique<NibbleBlocksLoader>(e, format, dim);
        return std::make_unique<PairsLoader>(e, format, dim);
    }
    if (blocks) return std::make_unique<ByteBlocksLoader>(e, format, dim);
    return std::make_unique<BytesLoader>(e, format, dim);
}

void ByteLoader::store_in_tile(const RegExp& row, const RegExp& to) {
    for (int chunk = 0; chunk < chunks(); ++chunk) {
        const std::vector<Vec> v = e_.vecs("packed", parts());
        load(v.data(), chunk, row);
        if (parts() == 2) e_.interleave(v[0], v[1]);
        for (int part = 0; part < parts(); ++part)
            e_.vmovups(e_.ptr[to + (chunk * parts() + part) * e_.vec_bytes()], v[size_t(part)]);
        e_.free(v);
    }
}

void ByteLoader::load_signed(const Vec* k, int chunk, const RegExp& row) {
    load(k, chunk, row);
    for (int part = 0; part < parts(); ++part)
        e_.vpsubb(k[part], k[part], e_.splat_bits(0x01010101u * uint32_t(byte_zero(format_))));
}

void ByteLoader::hold(int most) {
    for (const uint32_t bits : constants()) {
        if (int(held_.size()) >= most) return;
        held_[bits] = e_.vec("constant");
        e_.vmovups(held_[bits], e_.splat_bits(bits));
    }
}

std::vector<int> ByteLoader::groups(int chunk) const {
    std::vector<int> groups;
    for (int lane = 0; lane < e_.lanes(); ++lane) {
        const int element = order_[size_t(chunk * parts() * 4 * e_.lanes() + 4 * lane)];
        groups.push_back((element < 0 ? dim_ - 1 : element) / scale_group(format_));
    }
    return groups;
}

}  // namespace quire::jit
