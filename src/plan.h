// What is decided once per descriptor: kernels, tile sizes, target. Immutable, used from many threads.
#pragma once
#include <string>
#include <vector>

#include "jit/kernels.h"
#include "jit/qk_fours.h"
#include "src/precision.h"
#include "src/problem.h"
#include "src/target.h"

namespace quire {

// Key ranges are split at fixed positions of a sequence, so that a result never depends on threads or batch.
constexpr int64_t kDecodeSplit = 512;  // keys, a multiple of jit::kBlock
constexpr int64_t kTileSplit = 4096;   // keys, for short queries of more rows than decode takes
constexpr int kMaxTileRows = 384;      // query rows that share one packing of K and V

struct AttentionPlan {
    AttentionSpec spec{};
    const Target* target = nullptr;                    // portable: no kernels below
    std::vector<float> slopes;                         // [H], ALiBi only
    int key_stride = 0, value_stride = 0;              // V of keys and of values
    int key_scale_stride = 0, value_scale_stride = 0;  // floats, 0: not quantised
    jit::FoursForm fours[3];       // of keys in fours, where some kernel takes them: of 1, 2, 3 bytes
    int weight_stride = 0;         // of weights, in pairs of words
    int decode_rows = 0;           // most query rows of `decode`
    int few_rows = 0;              // of `few`, 0: there are none
    RestRows rest_rows;            // for first_rows()
    int tile_rows = 0;             // query rows of a work item, a multiple of panel_rows
    int panel_vecs = 0;            // widest panel
    int tile_keys = 0;             // keys packed at a time
    int tile_key_lanes = 0;        // 32-bit lanes of a packed key, most
    bool rows_are_packed = false;  // a key in the cache has the bytes of a packed one
    int tile_weight_groups = 0;    // of the values, where tiles or few rows have integer weights
    jit::DecodeKernels decode[jit::kMaxDecodeRows + 1];  // by query rows; empty where group() does not divide
    jit::DecodeKernels decode_bias[jit::kMaxDecodeRows + 1];  // with an additive mask
    jit::TileKernels tile[jit::kMaxPanelVecs + 1];            // by panel width
    jit::TileKernels tile_bias[jit::kMaxPanelVecs + 1];
    jit::TileKernels few[jit::kMaxDecodeRows + 1];  // by query rows, for takes_few()
    jit::TileKernels few_bias[jit::kMaxDecodeRows + 1];
    jit::PanelKernels panel, few_panel;
    jit::BiasKernels mask_rows;
    jit::PackKernels pack, few_pack;
    jit::Kernel<jit::MergeArgs> merge;
    jit::Kernel<jit::ScaleRowArgs> query_numbers, output_numbers;  // of a row: its type to f32, and back

    int panel_rows() const { return panel_vecs * target->lanes(); }
    // Whether so many query rows are in one vector of the lanes (most_few_rows).
    bool takes_few(int64_t rows) const { return rows > decode_rows && rows <= few_rows; }
    // How many of so many query rows are taken first: all, or what fills vectors of the lanes, or decode's
    // most; decode takes the rest, where that is quicker than one vector more.
    int64_t first_rows(int64_t rows) const;
};

struct AppendPlan {
    AppendSpec spec{};
    const Target* target = nullptr;
    jit::Kernel<jit::AppendArgs> key, value;                  // value: empty where there are none (Dv 0)
    jit::Kernel<jit::TokenPlaceArgs> key_place, value_place;  // empty where the cache has rows
    size_t kernel_floats = 0;                                 // scratch of either
};

struct ReadPlan {
    ReadSpec spec{};
    const Target* target = nullptr;
    jit::ReadKernels key, value;
    int scale_stride = 0;  // floats, of the side that needs more
    int row_stride() const { return key.stride > value.stride ? key.stride : value.stride; }
};

// `notes` gets a line for every choice and every candidate that declined.
Status make_attention_plan(const AttentionSpec& spec, const Target& target, jit::CodeCache& cache,
                           AttentionPlan* plan, std::string* notes);
// `name`: of the part in the notes.
Status make_append_plan(const char* name, const AppendSpec& spec, const Target& target, jit::CodeCache& cache,
                        AppendPlan* plan, std::string* notes);
Status make_read_plan(const ReadSpec& spec, const Target& target, jit::CodeCache& cache, ReadPlan* plan,
                      std::string* notes);

}  // namespace quire
