// Decode: scores of R query rows against keys of bytes by tiles of AMX: sixteen keys, as the cache has them,
// by the digits of all rows and of several groups side by side.
//
// The query's numbers are of two digits (precision `high`, and `medium`, which gains nothing from one) or of
// three (`highest`), as those of jit/qk_fours.h.
#pragma once
#include <vector>

#include "jit/amx.h"
#include "jit/args.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// Formats whose rows can be taken like this on the target.
bool has_key_amx(const quire_format& format, int dim, const Target& target);

// Of these products, those of jit/scaled_amx.h, too.
bool takes_key_amx(const RowKey& key);

// What the kernel takes of the query, and how it multiplies.
//
// A key row is `parts` parts of bytes: of nibbles even elements, then odd ones. What a tile takes of a part
// at a time is a chunk. Columns of the query's tiles, and so of the sums', are a set of groups of each query
// row: in a step of another group they are 0. Of a set's chunks each is a step.
//
// Digits have planes of their own: as many products of each step, and sums of each set. Or, where that takes
// fewer, sets are of digits, too (`mixed`): columns are pairs of a digit and a group, as many as there is
// room for beside few query rows, and there is one plane. A chunk of nibbles is of both parts (`joins_parts`)
// where that takes fewer steps, as it then has half the groups.
struct KeyAmx {
    explicit KeyAmx(const RowKey& key);  // of jit/scaled_amx.h, too: as if of one group

    static constexpr int kHalf = 32;     // bytes of a part in a chunk of both
    static constexpr int kMostSums = 8;  // tiles that QK has room for at a time

    struct Chunk {
        int part, at, bytes;
    };
    struct Step {
        int set, chunk;
    };
    struct Set {  // these groups of the first digit, then of the next one ...
        int digit, digits, group, groups;
    };
    struct Column {
        int at, digit;  // of a row's columns; digit: from the plane's on
    };

    int rows, digits, parts, part_bytes, groups, group_bytes;  // of a part
    int padded_rows = 1, together = 1;                         // powers of two
    std::vector<Set> mixed;                                    // empty: digits have planes
    bool joins_parts = false;
    std::vector<Chunk> chunks;
    std::vector<Step> steps;

    int planes() const { return mixed.empty() ? digits : 1; }
    int lanes() const { return padded_rows * together; }  // of a key's sums: [query row][group of the set]
    int lane_bytes() const { return 4 * lanes(); }
    // Whether all tiles are of 16 rows of 64 bytes (jit/amx.h).
    bool is_standard() const { return lanes() == 16 && chunks.back().bytes == 64; }
    int sets() const { return mixed.empty() ? (groups + together - 1) / together : int(mixed.size()); }
    // Of a byte of a chunk: in which part, and where in that. Behind the end of a part keys are 0.
    int part_of(const Chunk& chunk, int byte) const { return joins_parts ? byte / kHalf : chunk.part; }
    int at_of(const Chunk& chunk, int byte) const { return chunk.at + (joins_parts ? byte % kHalf : byte); }
    int group_of(const Chunk& chunk, int byte) const { return at_of(chunk, byte) / group_bytes; }
    // A row's columns of a group.
    std::vector<Column> columns_of(int set, int group) const;

    // The query: [planes(), the highest digit first][steps][kAmxPairs][lanes()] dwords; a row's own are
    // `together` of each lanes().
    int tile_bytes() const { return kAmxPairs * lane_bytes(); }
    int tile_at(int plane, int step) const { return (plane * int(steps.size()) + step) * tile_bytes(); }
    int query_bytes() const { return tile_at(planes(), 0); }
    int row_step() const { return 4 * together; }
    // Of each digit, in starts: what a row's digits are on the way.
    int plane_bytes() const { return parts * padded_part(); }
    int padded_part() const { return (part_bytes + 15) / 16 * 16; }

private:
    void add_chunks();
    void add_steps();
    // Chunks of both parts; false: there is one, or a part is not of whole quadwords.
    bool join_parts();
    // Digits side by side; false: there is no room.
    bool mix_digits();
    bool add_mixed(int digit, int count);
    int first_group(int set) const { return mixed.empty() ? set * together : mixed[size_t(set)].group; }
    int end_group(int set) const {
        return mixed.empty() ? first_group(set) + together : first_group(set) + mixed[size_t(set)].groups;
    }
    double cycles() const;
};

Status generate_qk_amx(const RowKey& key, std::vector<uint8_t>* code);     // void(const QkArgs*)
Status generate_query_amx(const RowKey& key, std::vector<uint8_t>* code);  // void(const QueryArgs*)

}  // namespace quire::jit
