// The plain structs that generated code receives, one a kernel, every field with its shape.
//
//   R  query rows that share a kv head       N  keys of a block (kBlock or kTileKeys)
//   V  elements of the key or value row, padded to whole vectors
//   L  lanes of a vector                     W  vectors of query rows in a panel (query rows in the lanes)
//
// Scores are in units of log2, so that softmax is exp2: scale and log2(e) are folded into the query.
#pragma once
#include <array>
#include <cstdint>

#include "jit/lines_ahead.h"

namespace quire::jit {

// Keys that decode takes at a time: what is done once a block weighs little, and a block of int8 rows and its
// scores stay in L1.
constexpr int kBlock = 128;
constexpr float kLog2e = 1.44269504f;  // natural logarithms to those of 2
// Numbers of an additive mask that hide no key, from the least on, which others below it are taken for; and
// that in units of log2.
constexpr float kLeastOfMask = -0x1.62e42ep127f, kLeastBias = kLeastOfMask * kLog2e;
static_assert(kLeastBias == -0x1.fffffcp127f);

// Most query rows that the decode kernels take (src/precision.h says of which plans); more rows go to the
// query-rows-in-lanes kernels.
constexpr int kMaxDecodeRows = 16;
// Keys of a block are padded (by repeating the last row) to a multiple of this, so that no kernel has a tail
// over keys: padded keys are hidden by softmax bounds.
constexpr int kKeyPadding = 16;

// Keys of one turn of QK at most: it asks for those of the next.
constexpr int kRowsSoon = 16;

// Keys behind the last one for whose scales there is room, of kernels that make them (makes_scales).
constexpr int kScalesAhead = 16;

// Vectors of dequantised values that the first pass over query rows may keep for the later ones: of a block,
// as wide as a pass gets.
constexpr int kMostWidth = 8, kMostNumbers = kBlock * kMostWidth;

// Numbers become words of 15 bits and a sign, relative to the largest of a list, which counts for at least
// kLeastTop: what is below weighs nothing, and its inverse is finite.
constexpr float kLargestWord = 32767, kLeastTop = 1e-30f;
// Numbers that share a factor are rounded relative to their largest, or to this share of the row's: what is
// smaller adds next to nothing to a score.
constexpr float kLeastShare = 1 / 1024.f;
// The largest number of so many digits, w = 256 * high + low or 256 * (256 * high + middle) + low, all signed
// bytes; a little below what they hold, as a float that is brought to it may be rounded up.
constexpr int largest_digits(int digits) { return 127 << 8 * (digits - 1); }
constexpr float kLargestOfThree = float(largest_digits(3));
// Factors of a query row's bytes as whole numbers, in units of the row's largest number / 127 / this one,
// which they are at most, but for a rounding.
constexpr int kLargestFactor = 16384;
// The largest byte of a query whose products with two codes of 8 bits are a word.
constexpr int kLargestOfWords = 63;

// Kernels of adjacent rows (Placement::adjacent) take of each list of rows the first address alone.
struct ScalesArgs {  // f32 or f16 scales of the block's rows -> f32
    const char* const*
        rows;    // [N] address of the row's scales (of the row where it holds them); padded as for QK
    float* out;  // [N][scale stride]: of each group its scale, and its minimum where it has one; for integer
                 // products -(minimum + zero * scale) / zero at RowKey::minima_at
    int64_t count;  // keys, a multiple of kKeyPadding
};

// Rows that the next block will read. A processor drops prefetches when it has as many misses under way as it
// can track (24 on Zen 3), so each kernel asks for a few lines at a time, all through its work.
struct NextRows {
    const char* const* rows;    // [kBlock] address of each row
    const char* const* scales;  // [kBlock] of its scales; quantised formats only
    int64_t near = 0;           // 1: into the first-level cache, 0: into the second
    int64_t together = 0;       // 1: kBlock tokens, in blocks of tokens that follow each other
};

struct QkArgs {
    // float [R][V]; int16_t [R][query words], in the order of the keys' words; or of keys in fours int8_t
    // [R][vectors][4 L] (jit/qk_fours.h)
    const void* query;
    const float* factors;   // of words, of two and of three bytes: [R], room for 3 more; of bytes
                            // [R][factors][L]
    const int32_t* starts;  // of fours [R][starts][L]: -zero * the sum of the lane's bytes or digits, times
                            // their factors where those are words; or what FoursForm::joins_runs says
    // [N + kRowsSoon] address of each key row; padded to a multiple of kKeyPadding, and behind them so many
    // that are asked for, not read (of blocks of tokens none)
    const char* const* rows;
    float* scales;  // [N][scale stride], quantised formats only; of kernels that make them, written, and for
                    // kScalesAhead more
    float* scores;  // [R][kBlock], written
    int64_t count;  // keys, a multiple of kKeyPadding
    NextRows next;
    float* numbers;  // [kMostNumbers][L], scratch
    // Of adjacent rows, as the cache has them, where kernels read those (jit/qk_fours.h: reads_scales).
    const char* stored_scales = nullptr;
};

struct QueryArgs {     // a query row -> what QK takes of it (QkArgs): QuerySizes
    const float* row;  // [D], of fours [chunks][parts][4 L], of tiles plane_bytes(), and one more; behind D 0
    int8_t* bytes;
    int32_t* starts;
    float* factors;
};

// What softmax needs to know of one query row.
struct RowBounds {
    int32_t begin, end;  // keys of the block that the row sees: begin <= key < end
    float slope;         // ALiBi slope * log2(e)
    float distance;      // position of the block's first key - position of the query
};

struct SoftmaxArgs {
    float* scores;            // [R][kBlock] in, probabilities out, relative to max or to the block's largest
    const float* bias;        // [R][kBlock] added to the scores (log2 units), kernels with a bias only
    const RowBounds* bounds;  // [R]
    // These are [R], and there is room for whole vectors:
    float* max;      // running maximum, in and out
    float* sum;      // running sum, in and out
    float* rescale;  // factor for what was accumulated before, out
    float* block;    // exp2(the block's largest score - max), out; where probabilities are relative to it
    float *tops, *totals;  // scratch
    int64_t rows;          // R
    int64_t count;         // keys, a multiple of kKeyPadding
    float cap;             // soft cap * log2(e); kernels with a soft cap only
};

// From a query row's weights to the next one's, of so many bytes a key: a line more than they have, as with a
// power of two all rows would be in one set of the first-level cache, which has 8 or 12 lines. `scaled`: they
// are not probabilities themselves, which follow each other.
constexpr int kWeightsPad = 64;
constexpr int weight_row_bytes(int bytes_of_key, bool scaled = true) {
    return kBlock * bytes_of_key + (scaled ? kWeightsPad : 0);
}

// Weights: probabilities * scales of the values. As words, w = weight * factor, where a factor serves
// one query row and one group in the block, so that its largest weight is near 2^15.
struct WeightsArgs {
    float* probabilities;  // [R][kBlock], room for a vector more; for words relative to the block's largest.
                           // Where words are products, they are overwritten.
    float* scales;         // [N][scale stride]; for three bytes overwritten
    // int16_t [R][kBlock / 2][weight stride][2]: of keys 2 i and 2 i + 1, and PV may read a vector more; or
    // float [R][kBlock][scale stride]; a row begins weight_row_bytes() behind the one before. Or as
    // ValueFours and ValueBytes have them. Written.
    void* weights;
    float* factors;      // of words: [R][weight stride] and a vector more, written
    int64_t count;       // keys, a multiple of kKeyPadding; padded ones have probability 0
    const float* block;  // as SoftmaxArgs, for words and bytes
    // Of bytes, which have no sign: written, not 0 where scales are below 0. Those count as 0; but NaN may be
    // among them.
    uint32_t* negative;
    // Where kernels read them (jit/weights.h: reads_value_scales): of adjacent rows, as QkArgs; of blocks of
    // tokens const char* [N / kBlockTokens], the address of each block's scales, 0 behind its last token.
    const void* stored_scales = nullptr;
};

// What minima add to outputs, before PV: output = output * rescale + that.
struct MinimaArgs {
    const float* probabilities;  // [R][kBlock]
    const float* minima;         // [N][scale stride], as ScalesArgs says
    const float* block;          // [R] what probabilities are relative to; where they are
    float* rescale;              // [R] in, 1 out; there is room for whole vectors
    float* output;               // [R][V]
    int64_t count;               // keys, a multiple of kKeyPadding
    float* sums;                 // [R][groups, padded to whole vectors], scratch
};

struct PvArgs {
    const void* probabilities;  // float [R][kBlock]; or the weights of WeightsArgs
    const char* const* rows;    // [N + kRowsSoon] address of each value row, as QkArgs
    const float* scales;        // [N][scale stride]; or the weights' factors
    const float* rescale;       // [R]
    float* output;              // [R][V] accumulated
    int64_t count;              // keys, a multiple of kKeyPadding; padded ones have probability 0
    NextRows next;
    float* numbers;  // as QkArgs
};

// ---- query rows in the lanes ----

constexpr int kTileKeys = 128;  // keys of a packed tile
constexpr int kMaxPanelVecs = 3;
constexpr int kTileStep = 8;    // a tile's scores are of a multiple of so many keys
constexpr int kBiasKeys = 4;    // an additive mask is added to so many keys at a time, or to a multiple
constexpr int kValuePanel = 8;  // values of one packed panel of V
// Floats from one panel to the next: a power of two of bytes would put all panels of a key in one cache set.
constexpr int kPanelStride = kTileKeys * kValuePanel + 16;

constexpr int kPairPanelStride = kTileKeys / 2 * kValuePanel + 16;  // of words, bfloats: pairs of keys
constexpr int kAmxRows = 16, kAmxPairs = 16;  // of a tile of AMX, a row is 64 bytes: pairs of bfloat16

// Pairs of integer weights from one group to the next, of so many query rows; as many sets as above.
constexpr int tile_weight_stride(int rows) { return kTileKeys / 2 * rows + 16; }

// The same of values and weights that are bytes, four keys a lane. So many keys' weights share a factor.
constexpr int kFourPanel = 2 * kValuePanel;  // a vector of 512 bits, for few query rows
constexpr int kFourPanelStride = kTileKeys / 4 * kFourPanel + 16;
constexpr int tile_byte_weight_stride(int rows) { return kTileKeys / 4 * rows + 16; }
// Keys of each four whose bytes follow each other in a lane of values and of weights.
constexpr int kKeysOfLane[] = {0, 2, 1, 3};
constexpr int kWeightRun = kKeyPadding, kWeightRuns = kTileKeys / kWeightRun;
// A weight is its probability, of the run's largest as so many, times its scale, of the run's largest as so
// many, with 15 bits off.
constexpr float kLargestByte = 255, kWordOfOne = 4096, kScaleOfOne = kLargestByte * 32768 / kWordOfOne;

struct PackArgs {             // rows into a tile of f32, of words, of bytes, or of bfloat16 numbers
    const char* const* rows;  // [N]
    const float* scales;      // [N][scale stride]; words, bytes of keys: not used
    // keys: float [N][V], int16_t [N][query words], pairs of bfloat16 [N][bfloat lanes], or uint8_t
    // [N][byte lanes][4]; values: float [ceil(V / 8)][kPanelStride], or [ceil(V / 8)][kPairPanelStride] pairs
    // of int16_t or bfloat16 (with AMX turned: jit/pack_amx.h), or [ceil(V / 16)][kFourPanelStride] fours of
    // int8_t: codes, or -codes where the scale is negative
    void* tile;
    int64_t count;      // keys; values in pairs: an even number, in fours: a multiple of kKeyPadding
    LinesAhead* ahead;  // of bfloat16 numbers with AMX: advanced
};

// Blocks of tokens (src/token_blocks.h). Lists of rows hold the address of block i in entry 16 i, and nothing
// else; scales are [N / 16][groups][16], weights [R][groups][kBlock] of float or int16_t
// (weight_row_bytes()), factors of words [R][groups].

struct TokenRowsArgs {          // blocks into plain rows
    const char* const* blocks;  // [N], as said
    char* rows;                 // [N][row], written
    char* scales;               // f16 [N][groups], written
    int64_t count;              // tokens, a multiple of kKeyPadding
};

struct TokenPlaceArgs {  // plain rows into one block
    const char* rows;    // [turns][TokenBlockInfo::placed_together()][placed_row_bytes()]
    char* codes;         // of the first of these tokens (codes_at()), written
    int64_t turns;       // at least 1
};

// Sums of products of bytes, in int32, start with the bits of this number, and so are always the bits of a
// number: of it + the sum, which is below 2^22.
constexpr float kByteTileZero = 12582912;  // 3 * 2^22

// Keys that products of numbers take for each vector of query rows: what a causal mask hides from the first
// ones only, the last ones see. None has less than the one before; the last has all. Other products, and
// those of AMX, take `count` for all.
using SeenKeys = std::array<int64_t, kMaxPanelVecs>;

// What scores are relative to where softmax can't wait for a tile's largest: the largest of the tiles before,
// which this one's may exceed by kHeadroom. Pairs of bfloat16 numbers have no room for what is larger than 1
// (jit/bfloat_exp2.h): theirs are relative to what lies kHeadroom above, until that has to be raised.
constexpr float kHeadroom = 8;
// Of pairs: 512 times this float32 still has whole numbers, so that words are off by half of one at most.
constexpr float kLargestPairTop = 1 << 15;

struct RelativeTops {
    float* max;      // [W * L] of the tiles before, as TileSoftmaxArgs; becomes top
    float* top;      // [W * L] written. Of pairs: as a tile before left it, which stays where it is max
    float* sum;      // [W * L] as TileSoftmaxArgs
    float* rescale;  // [W * L] written: exp2(max - top)
    float* scaled;   // [W * L] of pairs: lost
    float* total;    // [W * L] lost
    int64_t fails;  // written: 0; or a score is too large, or a row has seen no key (or a max is infinite, or
                    // too large for pairs): then max and sum are as they were, and scores are lost
};

struct TileQkArgs {
    // float [D][W * L], int16_t [D / 2][W * L][2] (jit/word_loader.h: swaps_middle), or bfloat16 the same,
    // in order, where a last one without another lies beside a 0; or of bytes int8_t [D / 4][W * L][4]
    // (jit/byte_loader.h: byte_tile_order), and behind them for each part [W * L] float -kByteTileZero * the
    // sum of its factors, and for each of its spans [W * L] int32_t kByteTileZero's bits -zero * the sum of
    // the span's bytes, and float factors (ByteTileForm::joins, shifts, weighs: other numbers); or of two or
    // three bytes for each part int8_t [digits][part / 4] [W * L][4], the highest digit first, and behind all
    // parts for each of them int32_t [sums][W * L] (ByteTileForm) -zero * the sum of the part's elements, or
    // of their first digits and of the rest, 256 middle + low
    const void* query;
    const void* keys;        // as packed; of kernels that pack them themselves const char* const [N], rows
    float* scores;           // [N][W * L], written
    int64_t count;           // keys, a multiple of kTileStep
    const float* scales;     // [N][scale stride], of words and bytes
    const float* factors;    // [W * L] of the query's words, two or three bytes, or joined spans
    float* new_max;          // [W * L] the largest of it and the scores, written; NaN does not count
    LinesAhead* ahead;       // advanced
    SeenKeys seen;           // [W] multiples of kTileStep; where they are taken, no more scores are written
    RelativeTops* relative;  // of kernels with softmax
    void* packed;            // of those that pack: uint8_t [2][kTileStep][byte lanes][4], written
};

// Rows of numbers <-> columns, query rows in the lanes; one vector of rows.
struct TileRowsArgs {         // query rows -> columns
    const char* const* rows;  // [L] of the query's type
    float* columns;           // [D][stride], L of each written: rows * factor
    int64_t stride;           // bytes
    float factor;
};

struct TileColumnsArgs {   // columns -> output rows
    const float* columns;  // [Dv][stride]
    int64_t stride;        // bytes
    const float* factors;  // [L]
    char* const* rows;     // [L] of the output's type, written: columns * factors
    float* poison;         // [L], written: NaN where a row got an Inf or NaN, else 0
};

struct TileQueryArgs {     // columns -> what the products of keys take that are not of floats
    const float* columns;  // [D][L]
    void* query;           // as TileQkArgs::query, of L rows
    int64_t stride;        // bytes
    float* factors;        // [L] of words, two and three bytes, joined spans, written
};

struct TileBiasArgs {         // scores + rows of an additive mask, in log2 units
    const char* const* rows;  // [L] of the mask's type, at any address
    int64_t first;            // bytes of each before its first key
    float* scores;   // [N][stride], L of each in and out; -Inf of the mask hides, no finite number does
    int64_t stride;  // bytes
    int64_t count;   // keys, a multiple of kBiasKeys
    int64_t fours;   // 1: rows 4 i to 4 i + 3 are the same
    float* max;      // [L] in: a bound from below; out: the larger of that and the sums
};

struct TileSoftmaxArgs {
    float* scores;          // [N][W * L] in, probabilities out, or [N / 2][W * L] pairs of bfloat16 ones
    const float* bias;      // [N][W * L]
    const int32_t* begin;   // [W * L] keys of the tile that a row sees: begin <= key < end
    const int32_t* end;     // [W * L]
    const float* slope;     // [W * L] as RowBounds
    const float* distance;  // [W * L]
    float* max;             // [W * L]
    const float* new_max;   // [W * L] of max and the scores; kernels that change scores find it themselves
    float* sum;             // [W * L]
    float* rescale;         // [W * L]
    int64_t count;          // keys, exact; of pairs: a multiple of kKeyPadding, what is padded being hidden
    int64_t plain;          // kernels with masks: so many keys at the beginning are seen by all rows
    float cap;
};

struct TileScalesArgs {  // scales of a tile's values, for weights that are words or bytes
    // [N][scale stride], become relative to the largest magnitude of their group; of bytes, to that of each
    // run of kWeightRun keys, without a sign and as words: of two keys in the place of the first's
    float* scales;
    float* tops;    // [groups], of bytes [runs][groups]: that, written
    int64_t count;  // keys, a multiple of kKeyPadding
};

struct TileWeightsArgs {  // probabilities * scales of the values, as words or unsigned bytes
    // [N][W * L], 0 for padded keys; bytes: pairs of bfloat16 [N / 2][W * L] where takes_bfloat_pairs says so
    const void* probabilities;
    const float* scales;  // [N][scale stride]: of each group, relative to the largest (TileScalesArgs)
    // int16_t [groups][tile_weight_stride][2], each [N / 2][W * L][2] written; or uint8_t
    // [groups][tile_byte_weight_stride][4], each [N / 4][W * L][4] written
    void* weights;
    float* factors;     // [W * L], written; of bytes [groups][kWeightRuns][W * L], times the largest scales
    const float* tops;  // of bytes: as TileScalesArgs
    int64_t count;      // keys, a multiple of kKeyPadding
};

struct TilePvArgs {
    const void* probabilities;  // float [N][W * L], pairs of bfloat16, or the weights of TileWeightsArgs
    const void* values;         // as packed; of few rows that are not: const char* [N], each row's address
    const float* rescale;       // [W * L], or NULL: output holds nothing yet
    float* output;              // [whole panels of Dv][W * L], of few rows [R][V]; accumulated
    int64_t count;              // keys, exact; of pairs: a multiple of kKeyPadding
    int64_t panels;             // of kValuePanel values: all
    const float* factors;       // of the weights, as TileWeightsArgs
    const float* tops;          // [groups]: the largest scales; bytes: not used
    LinesAhead* ahead;          // advanced
    const float* scales;        // of few rows as numbers: the values' [N][scale stride]
    // Whose content is lost: of few rows as numbers float [2][kTileKeys][L], as bytes that are not packed
    // uint8_t [kTileKeys][2 L].
    void* room;
    SeenKeys seen;  // [W] of pairs: even; where they are taken, no more probabilities are read
};

// ---- append and merge ----

struct AppendRow {
    const char* input;       // [D] of the input's type
    char* row;               // cache row, written; may be the input where the format is not quantised
    char* scales;            // [D / G], written; not used where the format has none
    const float *cos, *sin;  // [R / 2] of the token's position; kernels with a rotary embedding only
};

struct AppendArgs {
    const AppendRow* rows;  // [count]
    int64_t count;          // at least 1
    float* scratch;         // AppendKey::scratch_floats()
};

struct MergeArgs {               // out = sum over states of weight * state, in order
    const float* const* states;  // [count] each [Dv]
    const float* weights;        // [count]
    int64_t count;
    float* output;  // [Dv], written
};

}  // namespace quire::jit
