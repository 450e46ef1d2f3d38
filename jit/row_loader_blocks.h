// Rows of ggml's blocks (src/blocks.h). 32 is a multiple of the lanes: a vector lies in one block, in the low
// or in the high nibbles of consecutive bytes.
#pragma once
#include "jit/row_loader.h"

namespace quire::jit {

class BlockRowLoader : public RowLoader {
public:
    BlockRowLoader(Emitter& e, const quire_format& format, int dim, const BlockInfo& block)
        : RowLoader(e, format, dim), block_(block) {}

protected:
    void load_numbers(const Vec& out, int first_element, int, const RegExp& row) override {
        const RegExp block = row + first_element / kBlockValues * block_.bytes;
        const int first = first_element % kBlockValues;
        if (block_.code_bits == 8) {
            e_.vpmovsxbd(out, e_.ptr[block + block_.codes_at + first]);
            e_.vcvtdq2ps(out, out);
            return;
        }
        const RegExp bytes = block + block_.codes_at + first % 16;
        const bool high = first >= 16;
        if (!block_.high_bits_at) return e_.load_nibbles(out, bytes, high, numbers_of_codes());
        e_.load_nibbles(out, bytes, high);
        add_high_bits(out, block + block_.high_bits_at, first);
        if (block_.zero != 0) e_.vpsubd(out, out, e_.splat_bits(uint32_t(block_.zero)));
        e_.vcvtdq2ps(out, out);
    }

    void scale(const Vec& v, int vec, const RegExp& scales) override {
        const int group = vec * e_.lanes() / kBlockValues;
        const RegExp at = scales + group * block_.numbers() * 4;
        e_.multiply_by_scalar(v, at);
        if (block_.has_min) e_.add_scalar(v, at + 4);
    }

private:
    std::vector<float> numbers_of_codes() const {
        std::vector<float> numbers;
        for (int code = 0; code < 16; ++code)
            numbers.push_back(float(block_.table ? block_.table[code] : code - block_.zero));
        return numbers;
    }

    // codes |= bit `first` + lane of the dword at `bits`, as 16. Where there is no room to shift it right to
    // its place, the dword is read from a byte earlier, which is the block's too.
    void add_high_bits(const Vec& codes, const RegExp& bits, int first) {
        const bool earlier = first + e_.lanes() + 8 <= 32;
        Temp fifth(e_, "fifth bits");
        std::vector<uint32_t> to_place;
        for (int lane = 0; lane < e_.lanes(); ++lane)
            to_place.push_back(uint32_t(first + lane + (earlier ? 8 : 0) - 4));
        e_.vpbroadcastd(fifth, e_.ptr[bits - (earlier ? 1 : 0)]);
        e_.vpsrlvd(fifth, fifth, e_.constant(to_place));
        e_.bit_and(fifth, fifth, e_.splat_bits(16));
        e_.bit_or(codes, codes, fifth);
    }

    const BlockInfo block_;
};

}  // namespace quire::jit
