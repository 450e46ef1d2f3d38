// Decode: scores of R query rows against keys in blocks of tokens by tiles of AMX. A block's dwords of 64
// elements are the second tile of a product as they lie, sixteen tokens side by side; digits of all query
// rows are the rows of the first one, so that a row of sums is sixteen scores.
//
// The query's numbers have two digits or three, as those of jit/qk_amx.h.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Formats whose blocks can be taken like this on the target.
bool has_token_key_amx(const quire_format& format, int dim, const Target& target);

// Of these products.
bool takes_token_key_amx(const RowKey& key);

// What the kernel takes of the query, and how it multiplies.
//
// A chunk is of 64 elements: a tile of keys. The last one of heads that are no multiple of it begins earlier,
// and has 0 of the query where another has been, or, of nibbles, ends earlier, and has 0 behind its end.
//
// A set is of some groups, all of them in the same chunks, whose products it adds up. Lines of its tiles of
// the query are [digit, the highest first][group][query row], each of a chunk's elements, of which those of
// other groups are 0; and so are those of its sums, each of sixteen tokens.
struct TokenKeyAmx {
    explicit TokenKeyAmx(const RowKey& key);

    static constexpr int kChunk = 64, kLine = 64, kTileLines = 16;
    static constexpr int kTileBytes = kTileLines * kLine;
    static constexpr int kMostLines = 128;  // of a set

    struct Set {
        int chunk, chunks, group, groups;
    };

    int rows, digits, dim, group_size;
    int parts;  // of a key's bytes: of nibbles even elements, then odd ones
    std::vector<Set> sets;

    int chunks() const { return (dim + kChunk - 1) / kChunk; }
    int chunk_at(int chunk) const {
        return parts == 1 ? std::min(chunk * kChunk, dim - kChunk) : chunk * kChunk;
    }
    // The element of a chunk's byte; below 0: another chunk has it, or there is none.
    int element_of(int chunk, int byte) const;

    int lines(const Set& set) const { return digits * set.groups * rows; }
    int tiles(const Set& set) const { return (lines(set) + kTileLines - 1) / kTileLines; }
    int tiles() const { return query_bytes() / kTileBytes; }  // of the query
    // In bytes: of the query, tiles of a set's chunk; and where the lines of all query rows begin, from there
    // on, or from where the set's sums do.
    int query_at(int set, int chunk) const;
    int query_bytes() const { return query_at(int(sets.size()), 0); }
    int line_at(const Set& set, int digit, int group) const {
        return (digit * set.groups + group) * rows * kLine;
    }

    // Of each digit, in starts: what a row's digits are on the way.
    int plane_bytes() const { return parts * padded_part(); }
    int padded_part() const { return chunks() * kChunk / parts; }

private:
    std::vector<int> groups_of(int chunk) const;
    void add_sets(int chunk, int chunks, int first, int end);
};

Status generate_token_qk_amx(const RowKey& key, std::vector<uint8_t>* code);     // void(const QkArgs*)
Status generate_query_token_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const QueryArgs*)

}  // namespace quire::jit
