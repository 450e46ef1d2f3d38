// Panels of query rows in the lanes, and what attend_tiles keeps of a tile of keys. Their steps in the order
// of a panel's life; src/attend_tiles.cc strings them together.
#pragma once
#include <algorithm>

#include "src/attend.h"
#include "src/attend_ahead.h"
#include "src/token_rows.h"

namespace quire {

struct Panel {
    int64_t row_begin, rows;          // first query row of the sequence, rows in use
    int64_t first_query, last_query;  // of the sequence, whose rows they are
    int vecs, lanes;                  // width: vectors, and lanes of them all
    KeyRange any, all;                // keys that some row sees, and that every row sees
    float *query, *output;            // [D][lanes] or as jit::TileQkArgs says, as jit::TilePvArgs says
    float* factors;                   // [lanes] of the words, or of two or three bytes
    float *max, *sum;                 // [lanes]
    float* top;                       // [lanes] of jit::RelativeTops
    const char** queries;             // [lanes] rows; lanes without one have the last one's
    char** outputs;                   // [lanes] rows of the output, or of states; or TileState::spare_row
    const char** mask;   // [lanes] rows of a mask that is no more than numbers, from key 0 on; or null
    bool mask_in_fours;  // of lanes that have the same one
    bool wary;           // the tile before was too much for jit::RelativeTops
    bool begun, asked, written;  // asked: for the lines of its outputs

    bool sees(int64_t from, int64_t count) const { return any.begin < from + count && from < any.end; }
};

// body(query, head, begin, end) for each query of the panel: its rows are begin .. end of the panel's, of
// heads from `head` on of the group's.
template <typename Body>
void for_queries(const Panel& panel, int64_t group, const Body& body) {
    int64_t begin = 0, head = panel.row_begin - panel.first_query * group;
    for (int64_t query = panel.first_query; query <= panel.last_query; ++query, head = 0) {
        const int64_t end = std::min(begin + group - head, panel.rows);
        body(query, head, begin, end);
        begin = end;
    }
}

struct TileState {
    bool few;                      // AttentionPlan::takes_few: there is one panel
    const jit::PackKernels* pack;  // the plan's, or those of few rows
    const void* packed_keys;  // as TileQkArgs has them: `keys`, rows of the cache that lie as such, or a list
    const void* packed;       // values as TilePvArgs has them
    bool value_lists;         // they are rows (PackKernels::value_lists)
    Panel* panels;
    int64_t num_panels;
    float *keys, *values;              // packed tile; few rows pack values that are bytes alone
    float *key_scales, *value_scales;  // f32 scales of its rows
    float* tops;                       // largest scales of the values (jit::TileScalesArgs)
    void* weights;                     // as jit::TileWeightsArgs, or TilePvArgs
    float* weight_factors;
    float *scores, *bias;                         // [tile_keys][panel lanes]
    float *new_max, *rescale, *slope, *distance;  // [panel lanes]
    float *scaled_top, *total;                    // [panel lanes] of jit::RelativeTops
    int32_t *begin, *end;                         // [panel lanes]
    float* columns;                               // [D][L] query rows before they are rounded
    float* spare_row;                             // [Dv], written by lanes without a row
    float* bias_rows;                             // [4][kTileKeys]
    RowAddresses *addresses, *next;               // of this tile and of the next one, be it the next item's
    int64_t next_asked;                           // rows of that which have been asked for
    int64_t asked_by_packing;                     // the first of them
    const char** next_queries;                    // [panel lanes] of the next item's first panel
    int64_t num_next_queries;                     // 0: `next` is of this item, or none
    const Panel* mask_asked;                      // whose mask the panel before asked for, or null
    bool asks_early;                              // QK is too short for all lines of a mask: panels do so
    Ahead* ahead;
    TakenRows taken;  // of blocks of tokens: keys, then values
};

void make_panels(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, Scratch& scratch,
                 TileState* s, States& states);

// Before its first tile, when that is at hand: then the query is in the caches when it is needed.
void begin_panel(const AttentionPlan& plan, Panel& panel, const TileState& s);

// What packing asks for while it computes: as much of the next tile as it can, with few panels.
jit::LinesAhead* look_ahead_of_packing(const AttentionPlan& plan, bool packs_keys, TileState& s);

// What panel `index` asks for: its share of what is left of the next tile, the queries of the next panel, and
// its own output's lines before they are written. Shares of panels that do not see this tile fall to the one
// after them.
void look_ahead(const AttentionPlan& plan, int64_t index, bool ends_soon, TileState& s);

// The rows of an additive mask: the panel's own, for QK to ask for; where it has too few products for all
// lines, those of the item's next panel, too, of this tile or of the next.
void look_ahead_at_mask(const AttentionProblem& p, int64_t index, int64_t begin, int64_t tile_count,
                        TileState& s);

// Bounds and ALiBi constants of the panel's lanes for the tile at `begin`.
void set_bounds(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
                int64_t begin, int64_t count, const TileState& s);

// Panel::mask.
void list_mask(const AttentionProblem& p, const Item& item, Scratch& scratch, Panel* panel);

// Adds what score terms say to the tile's scores, where they are a row of numbers and no soft cap comes
// between; TileState::new_max is the largest of all then, where keys are a multiple of kBiasKeys. False: it
// is in TileState::bias, for softmax to add.
bool add_terms(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
               int64_t begin, int64_t count, const TileState& s);

// Dropout of the tile's probabilities, which softmax has left in the scores' memory.
void drop_panel(const AttentionProblem& p, const Item& item, const Panel& panel, int64_t begin, int64_t count,
                const TileState& s);

// After its last tile: the output, or states.
void write_panel(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, Panel& panel,
                 const TileState& s, States& states);

}  // namespace quire
