// One part a format of codes: turns the bytes of key rows into unsigned bytes, codes that begin at 0, the
// operands of 8-bit dot products. As WordLoader for 16-bit words.
//
// A chunk is one vector of 8-bit codes, or two of 4-bit ones; a lane has four bytes of each, of one group.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "jit/emitter.h"
#include "src/format.h"

namespace quire::jit {

// Formats whose rows can be bytes of 8-bit dot products.
bool has_bytes(const quire_format& format);

// Elements of a key row in the order of its bytes, -1 for padding: [chunks][parts][4 L].
std::vector<int> byte_order(const quire_format& format, int dim, int lanes);
// Where the last chunk has 16 or 32 bytes of a row, and a vector 64: so many. Two rows then share it, one in
// each half, and the order has its elements in both. Else 0.
int half_chunk(const quire_format& format, int dim, int lanes);
// What the second of two joined sums starts with. Of eight codes of four bits times bytes they are within
// 15 * 127 * 8 = 15240: it then is a word from 0 on, which borrows nothing from the first one above it.
constexpr int kSpanZero = 16384;
// Vectors of a chunk.
inline int byte_parts(const quire_format& format) { return has_two_parts(format) ? 2 : 1; }
// The byte that means 0, a power of two.
uint8_t byte_zero_bits(const quire_format& format);
inline int byte_zero(const quire_format& format) { return 1 << byte_zero_bits(format); }

// ---- tiles, where query rows lie in the lanes ----

// Elements of which a row of bytes has one factor, so that few lose by a large one.
constexpr int kByteTileSpan = 8;

// How tiles take the bytes of a format, with query elements of one digit, two or three.
struct ByteTileForm {
    ByteTileForm(const quire_format& format, int query_digits, const Target& target);
    int digits;
    // Of small numbers and one digit, where a processor has four pipes: spans are added up in whole numbers,
    // two by two (as FoursForm::joins_runs). Numbers of a part are then what it starts with, and its factors,
    // words of two spans a lane, the first one above.
    bool joins;
    // The same of others: two spans' sums are one in units of the second span, for which that of the
    // first is shifted. Numbers of a part are then its zero, and of each two spans 4 + log2 of the first
    // one's unit in those of the second, -4 to 4, and the second's factor.
    bool shifts;
    // Small numbers without VNNI, with 256 bits: a span's bytes are added up as words, which its factor, a
    // word twice in a lane, multiplies. Numbers of a part are what it starts with, and the spans' factors.
    bool weighs;
    int part;     // of a group, what is added up before it is scaled: elements, a power of two
    int sums;     // in int32: of all digits, or of the first two and the last
    int numbers;  // of a part beside the bytes (args.h: TileQkArgs)
};
constexpr int kLargestShift = 4;
// The query's elements: the fours that are a lane of a chunk's vectors follow each other.
std::vector<int> byte_tile_order(const quire_format& format, int dim);

class ByteLoader {
public:
    static std::unique_ptr<ByteLoader> make(Emitter& e, const quire_format& format, int dim);
    ByteLoader(Emitter& e, const quire_format& format, int dim)
        : e_(e), format_(format), dim_(dim), order_(byte_order(format, dim, e.lanes())) {}
    virtual ~ByteLoader() = default;

    int parts() const { return byte_parts(format_); }
    int chunks() const { return int(order_.size()) / (parts() * 4 * e_.lanes()); }
    // The group of a lane's elements, of each lane; padding has the last.
    std::vector<int> groups(int chunk) const;
    // Keeps up to so many of its constants in registers, where it would read them from memory.
    virtual void hold(int most);

    // k[parts]; padding is any byte.
    void load(const Vec* k, int chunk, const RegExp& row) {
        load_packed(k[0], chunk, row);
        unpack(k);
    }
    // All of a row into `to`, in the order of byte_tile_order. Clobbers nothing.
    void store_in_tile(const RegExp& row, const RegExp& to);
    // The same as signed numbers.
    virtual void load_signed(const Vec* k, int chunk, const RegExp& row);
    // As they lie in the row, or in two (half_chunk); and from k[0] to k[parts], lane by lane.
    virtual void load_packed(const Vec& v, int chunk, const RegExp& row) = 0;
    virtual void load_packed(const Vec& v, const RegExp& low, const RegExp& high) = 0;
    virtual void unpack(const Vec*) {}

protected:
    virtual std::vector<uint32_t> constants() const = 0;
    // use(v, a, constant), an operation of the emitter.
    using Use = void (Emitter::*)(const Vec& d, const Vec& a, const Xbyak::Operand& b);
    void with(uint32_t bits, Use use, const Vec& v) {
        const auto held = held_.find(bits);
        held == held_.end() ? (e_.*use)(v, v, e_.splat_bits(bits)) : (e_.*use)(v, v, held->second);
    }
    int left(int first) const { return dim_ - first; }
    int half_chunk_bytes() const { return half_chunk(format_, dim_, e_.lanes()); }

    Emitter& e_;
    const quire_format format_;
    const int dim_;
    const std::vector<int> order_;
    std::map<uint32_t, Vec> held_;
};

}  // namespace quire::jit
