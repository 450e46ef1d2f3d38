#include "jit/word_loader.h"

#include <algorithm>

namespace quire::jit {
namespace {

// ---- codes of eight bits: word i of vector a is element 2 i, of b 2 i + 1 ----

class BytesWordLoader : public WordLoader {
public:
    using WordLoader::WordLoader;
    std::vector<int> value_groups(int vec) const override {
        std::vector<int> groups;
        for (int lane = 0; lane < e_.lanes(); ++lane)
            groups.push_back(group_of(vec / 2 * 2 * e_.lanes() + e_.pair_byte(vec % 2, lane)));
        return groups;
    }
    void load_keys(const Vec& a, const Vec& b, int chunk, const RegExp& row) override {
        load_bytes(a, chunk * 4 * e_.lanes(), row);
        e_.vpsraw(b, a, 8);
        e_.vpsllw(a, a, 8);
        e_.vpsraw(a, a, 8);
    }
    void load_values(const Vec* v, int vec, const RegExp& first, const RegExp& second) override {
        const int begin = vec * e_.lanes(), at = byte_of(begin);
        e_.load_word_pairs(v[0], v[1], first + at, second + at, std::min(2 * e_.lanes(), left(begin)));
    }
    void restore_order(const Vec* v) override { e_.restore_pairs(v[0], v[1]); }

protected:
    virtual int byte_of(int element) const { return element; }
    virtual void load_bytes(const Vec& v, int first, const RegExp& row) {
        e_.load_raw(v, row + first, std::min(4 * e_.lanes(), left(first)));
    }
};

// Q8_0: a chunk is a block, or two.
class ByteBlocksWordLoader : public BytesWordLoader {
public:
    ByteBlocksWordLoader(Emitter& e, const quire_format& format, int dim, const BlockInfo& block)
        : BytesWordLoader(e, format, dim), block_(block) {}

protected:
    int byte_of(int element) const override {
        return element / kBlockValues * block_.bytes + block_.codes_at + element % kBlockValues;
    }
    void load_bytes(const Vec& v, int first, const RegExp& row) override {
        const int n = std::min(4 * e_.lanes(), left(first));
        if (n <= kBlockValues) return e_.load_raw(v, row + byte_of(first), n);
        e_.load_raw(v, row + byte_of(first), row + byte_of(first + kBlockValues), 32);
    }

private:
    const BlockInfo block_;
};

// ---- codes of four bits: a is of low nibbles, b of high ones ----

class NibblesWordLoader : public WordLoader {
public:
    using WordLoader::WordLoader;

protected:
    // Sign-extended bytes to their nibbles, two's complement.
    void split(const Vec& a, const Vec& b) {
        e_.vpsraw(b, a, 4);
        e_.vpsllw(a, a, 12);
        e_.vpsraw(a, a, 12);
    }
};

// INT4: byte i is elements 2 i and 2 i + 1.
class PairsWordLoader : public NibblesWordLoader {
public:
    using NibblesWordLoader::NibblesWordLoader;
    std::vector<int> value_groups(int vec) const override {  // of both vectors
        std::vector<int> groups;
        for (int lane = 0; lane < e_.lanes(); ++lane)
            groups.push_back(group_of(vec / 2 * 2 * e_.lanes() + 2 * lane));
        return groups;
    }
    void load_keys(const Vec& a, const Vec& b, int chunk, const RegExp& row) override {
        const int first = chunk * 2 * e_.lanes();
        e_.load_words(a, row + first, std::min(2 * e_.lanes(), left(2 * first) / 2));
        split(a, b);
    }
    void load_values(const Vec* v, int vec, const RegExp& first, const RegExp& second) override {
        load_pairs(v[0], vec, first, second);
        split(v[0], v[1]);
    }
    void load_value_tops(const Vec* v, int vec, const RegExp& first, const RegExp& second) override {
        load_pairs(v[0], vec, first, second);
        e_.vpsllw(v[1], v[0], 8);
        e_.bit_and(v[1], v[1], e_.splat_bits(0xf000f000));
        e_.vpsllw(v[0], v[0], 12);
    }
    void restore_order(const Vec* v) override { e_.interleave(v[0], v[1]); }

private:
    void load_pairs(const Vec& v, int vec, const RegExp& first, const RegExp& second) {
        const int begin = vec * e_.lanes() / 2;
        e_.load_word_pairs(v, first + begin, second + begin, std::min(e_.lanes(), left(2 * begin) / 2));
    }
};

// Q4_0: byte i of a block is elements i and i + 16, each with 8 added.
class NibbleBlocksWordLoader : public NibblesWordLoader {
public:
    NibbleBlocksWordLoader(Emitter& e, const quire_format& format, int dim, const BlockInfo& block)
        : NibblesWordLoader(e, format, dim), block_(block) {}

    std::vector<int> value_groups(int vec) const override {
        return std::vector<int>(size_t(e_.lanes()), value_vec(vec) * e_.lanes() / kBlockValues);
    }
    int value_vec(int vec) const override {
        const int vecs = kBlockValues / e_.lanes(), in_block = vec % vecs;
        return vec / vecs * vecs + in_block / 2 + in_block % 2 * (vecs / 2);
    }
    void load_keys(const Vec& a, const Vec& b, int chunk, const RegExp& row) override {
        const int first = chunk * 4 * e_.lanes();
        const int n = std::min(2 * e_.lanes(), left(first) / 2);
        if (n <= kBlockValues / 2)
            e_.load_words(a, row + codes_of(first), n);
        else
            e_.load_words(a, row + codes_of(first), row + codes_of(first + kBlockValues));
        split_offset(a, b);
    }
    void load_values(const Vec* v, int vec, const RegExp& first, const RegExp& second) override {
        const int at = codes_of_values(vec);
        e_.load_word_pairs(v[0], first + at, second + at, e_.lanes());
        split_offset(v[0], v[1]);
    }
    void restore_order(const Vec*) override {}

protected:
    int codes_of(int element) const { return element / kBlockValues * block_.bytes + block_.codes_at; }
    int codes_of_values(int vec) const {
        const int element = value_vec(vec) * e_.lanes();
        return codes_of(element) + element % kBlockValues;
    }

    const BlockInfo block_;

private:
    // The top bit of each nibble flips, and what the sign of the byte was extended to.
    void split_offset(const Vec& a, const Vec& b) {
        e_.bit_xor(a, a, e_.splat_bits(0xff88ff88));
        split(a, b);
    }
};

// Of which nibbles are numbers only with something besides: they are so as bytes, before these are words.
class UnevenBlocksWordLoader : public NibbleBlocksWordLoader {
public:
    using NibbleBlocksWordLoader::NibbleBlocksWordLoader;
    void load_keys(const Vec& a, const Vec& b, int chunk, const RegExp& row) override {
        std::vector<RegExp> blocks;
        for (int first = chunk * 4 * e_.lanes(), i = 0; i < e_.lanes() / 8 && left(first) > 0; ++i) {
            blocks.push_back(row + codes_of(first));
            first += kBlockValues;
        }
        e_.load_quarters(a, blocks);
        e_.separate_nibbles(a, b);
        to_numbers_of_keys(a, b, blocks);
        for (const Vec* v : {&a, &b}) e_.words_of_half(*v);
    }
    void load_values(const Vec* v, int vec, const RegExp& first, const RegExp& second) override {
        const int at = codes_of_values(vec);
        e_.load_byte_pairs(v[0], first + at, second + at, e_.lanes());
        e_.separate_nibbles(v[0], v[1]);
        const int in_block = value_vec(vec) * e_.lanes() % kBlockValues;
        to_numbers_of_values(v[0], v[1], first + (at - in_block), second + (at - in_block), in_block);
        for (int i : {0, 1}) e_.words_of_half(v[i]);
    }

protected:
    // Lower halves, low nibbles and high ones: each 128 bits of those of a block whose codes begin there.
    virtual void to_numbers_of_keys(const Vec& low, const Vec& high, const std::vector<RegExp>& blocks) = 0;
    // Of values of two rows by turns, the first two of element `first` of the blocks.
    virtual void to_numbers_of_values(const Vec& low, const Vec& high, const RegExp& block,
                                      const RegExp& second, int first) = 0;
};

// IQ4_NL: each nibble is the place of its number in a table.
class TableBlocksWordLoader : public UnevenBlocksWordLoader {
public:
    using UnevenBlocksWordLoader::UnevenBlocksWordLoader;

protected:
    void to_numbers_of_keys(const Vec& low, const Vec& high, const std::vector<RegExp>&) override {
        e_.look_up_nibbles({e_.half_of(low), e_.half_of(high)}, block_.table, 0);
    }
    void to_numbers_of_values(const Vec& low, const Vec& high, const RegExp&, const RegExp&, int) override {
        e_.look_up_nibbles({e_.half_of(low), e_.half_of(high)}, block_.table, 0);
    }
};

// Q5_0: bit i of a dword before the codes is the fifth of code i, which has 16 added.
class FifthBitsWordLoader : public UnevenBlocksWordLoader {
public:
    using UnevenBlocksWordLoader::UnevenBlocksWordLoader;

protected:
    void to_numbers_of_keys(const Vec& low, const Vec& high, const std::vector<RegExp>& blocks) override {
        Temp bits(e_, "bits of blocks");
        std::vector<RegExp> at;
        for (const RegExp& codes : blocks) at.push_back(codes - before_codes());
        e_.load_quarters(bits, at);
        for (uint32_t part : {0, 1}) {
            const uint32_t first = 0x02020202 * part, next = first + 0x01010101;
            e_.take_fifth_bits(
                part ? high : low, bits,
                {{first, first, next, next}, {0x08040201, 0x80402010, 0x08040201, 0x80402010}});
        }
    }
    void to_numbers_of_values(const Vec& low, const Vec& high, const RegExp& block, const RegExp& second,
                              int first) override {
        Temp bits(e_, "bits of two rows");
        e_.broadcast_dwords(bits, block - before_codes(), second - before_codes());
        for (uint32_t part : {0, 1}) {
            std::vector<uint32_t> bytes;  // of the first row, of the second one, by turns
            for (uint32_t lane = 0; lane < 8; ++lane)
                bytes.push_back(0x04000400 + 0x01010101 * (2 * part + uint32_t(first) / 8 + lane / 4));
            e_.take_fifth_bits(part ? high : low, bits,
                               {bytes, {0x02020101, 0x08080404, 0x20201010, 0x80804040}});
        }
    }

private:
    int before_codes() const { return block_.codes_at - block_.high_bits_at; }
};

}  // namespace

bool has_words(const quire_format& format) {
    return block_info(format.type) || (is_quantised(format) && format.quant_group % 4 == 0);
}

bool swaps_middle(const quire_format& format) {
    const BlockInfo* block = block_info(format.type);
    return !block || block->code_bits != 4;
}

std::vector<int> word_order(const quire_format& format, int dim, int lanes) {
    const bool halves = !swaps_middle(format);  // of a block, in low and high nibbles
    std::vector<int> order;
    for (int chunk = 0; chunk * 4 * lanes < dim; ++chunk)
        for (int half = 0; half < 2; ++half)
            for (int word = 0; word < 2 * lanes; ++word) {
                const int first = chunk * 4 * lanes;
                const int element =
                    first + (halves ? word / 16 * 32 + half * 16 + word % 16 : 2 * word + half);
                order.push_back(element < dim ? element : -1);
            }
    return order;
}

std::unique_ptr<WordLoader> WordLoader::make(Emitter& e, const quire_format& format, int dim) {
    if (const BlockInfo* block = block_info(format.type)) {
        if (block->code_bits == 8) return std::make_unique<ByteBlocksWordLoader>(e, format, dim, *block);
        if (block->table) return std::make_unique<TableBlocksWordLoader>(e, format, dim, *block);
        if (block->high_bits_at) return std::make_unique<FifthBitsWordLoader>(e, format, dim, *block);
        return std::make_unique<NibbleBlocksWordLoader>(e, format, dim, *block);
    }
    if (format.type == QUIRE_INT8) return std::make_unique<BytesWordLoader>(e, format, dim);
    return std::make_unique<PairsWordLoader>(e, format, dim);
}

int WordLoader::group_of(int element) const { return std::min(element, dim_ - 1) / scale_group(format_); }

std::vector<int> WordLoader::key_groups(int chunk) const {
    std::vector<int> groups;
    for (int lane = 0; lane < e_.lanes(); ++lane) groups.push_back(group_of(4 * (chunk * e_.lanes() + lane)));
    return groups;
}

}  // namespace quire::jit
