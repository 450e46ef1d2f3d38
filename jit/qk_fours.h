// Decode: scores of R query rows against keys of bytes, four keys side by side in every 128 bits of a vector.
//
// The query's elements are one byte each (precision `medium`), or with VNNI the two digits of a word (`high`)
// or the three of a number's 24 bits (`highest`).
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Formats whose rows can be taken like this on the target, with so many digits of the query.
bool has_fours(const quire_format& format, const Target& target, int digits);

inline bool takes_fours(const RowKey& key) { return key.query_bytes() > 0; }

// What the kernel takes of a query row (args.h: QkArgs).
//
// A chunk is a vector of a key row (jit/byte_loader.h), whose lane 4 i + j is dword j of 128 bits i. Fours of
// keys are transposed: vector j then has lane 4 i + k from key k. A run is of so many j whose lanes share a
// group and, of bytes, a factor. Where the last chunk of a row has 16 or 32 bytes, of 64 (half_chunk of
// jit/byte_loader.h), a vector has four keys in one half and the next four in the other.
struct FoursForm {
    FoursForm() = default;
    explicit FoursForm(const RowKey& key);
    std::vector<int> order;  // elements of the row by byte: [chunks][parts][4 L], -1 for padding
    int lanes = 0, parts = 0, digits = 0, chunks = 0, run = 4;
    int zero = 0;             // the key's byte that means 0
    bool small = false;       // its numbers are of four bits (has_small_numbers)
    bool has_minima = false;  // of groups, apart (ScalesArgs): times what the query's numbers add up to
    bool has_half = false;
    // Rows that are a half chunk: a turn has twice as many, where registers are left for that. Of one digit
    // listed ones lose by it.
    bool twice = false;
    // Of one byte: a lane's dwords are of one group, and too many for one factor of the query.
    bool runs_share_scale = false;
    // The same of small numbers in two parts: the runs of a lane, one dword each, are added up in whole
    // numbers. Factors are words, that of an even j above that of the next, and in the end one float for the
    // row, their unit. A lane starts with -sum over its runs of factor * (zero * the sum of the run's bytes +
    // kSpanZero where j is odd).
    bool joins_runs = false;
    // Of one byte, where products of bytes are added to words first: those of two elements of each part share
    // a factor, a word, with which `vpmaddwd` multiplies them. Factors are whole numbers of a unit as above.
    bool weighs_words = false;
    // With 512 bits, where each dword has a scale of its own, and those of four keys are more than a vector:
    // they are transposed for all dwords together. For half as many that gains nothing.
    bool keeps_scales = false;
    int largest = 0;  // of the query's numbers

    bool is_half(int chunk) const { return has_half && chunk + 1 == chunks; }
    int runs() const { return 4 / run; }  // of a chunk
    // Vectors of a row: the query's [chunks][4][parts][digits], the highest digit first; of factors
    // [chunks][runs], or [chunks][2] pairs, or [chunks][4], and one more; and of what its sums start with
    // [chunks][runs][chains], or [chunks].
    int vectors() const { return chunks * 4 * parts * digits; }
    int sums() const { return chunks * runs(); }
    int chains() const { return digits == 3 ? 2 : 1; }
    int starts() const { return joins_runs ? chunks : sums() * chains(); }
    int factors() const { return has_unit() ? words() + 1 : sums(); }
    bool has_unit() const { return joins_runs || weighs_words; }
    int words() const { return (joins_runs ? 2 : 4) * chunks; }  // vectors of factors that are words

    int vecs() const { return lanes == 16 ? 32 : 16; }  // registers
    // F: they share what is loaded of the query.
    int fours() const { return lanes == 16 ? (twice ? 4 : 2) : 1; }
    // Vectors that a turn's keys take: one for two fours of them in a half chunk.
    int sets(int chunk) const { return is_half(chunk) ? fours() / 2 : fours(); }
    // Registers that a pass over so many query rows leaves; so many of them that it does not take too many;
    // and whether the next chunk's keys, or the next turn's, are loaded between the products of this one's.
    // Where there are several passes, each begins with its own.
    int spare(int rows) const;
    int rows_a_pass(int rows) const;
    bool loads_ahead(int rows) const;
};

// Whether QK makes the scales of the next turn's keys between products, too: of blocks, whose rows hold them,
// a kernel of its own would wait for all lines of the rows.
bool makes_scales(const RowKey& key);

// Whether it takes the scales of adjacent rows as the cache has them: a permutation brings those of four keys
// where they belong, which as numbers they would need, too.
bool reads_scales(const RowKey& key);

Status generate_qk_fours(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
