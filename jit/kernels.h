// Sets of generated kernels that work together, made through the code cache.
#pragma once
#include <memory>
#include <vector>

#include "jit/amx.h"
#include "jit/append.h"
#include "jit/args.h"
#include "jit/code_cache.h"
#include "jit/kernel_key.h"
#include "jit/scale_row.h"

namespace quire::jit {

// A generated kernel; holds its code.
template <typename Args>
class Kernel {
public:
    Kernel() = default;
    explicit Kernel(std::shared_ptr<const Code> code)
        : code_(std::move(code)), function_(code_->as<void (*)(const Args*)>()) {}
    void operator()(const Args& args) const { function_(&args); }
    explicit operator bool() const { return function_ != nullptr; }
    const Code& code() const { return *code_; }

private:
    std::shared_ptr<const Code> code_;
    void (*function_)(const Args*) = nullptr;
};

struct BlockKernels {                             // what reads the rows of a block
    Kernel<ScalesArgs> key_scales, value_scales;  // empty where the format has none, or others take them
    Kernel<QkArgs> qk;
    Kernel<WeightsArgs> weights;  // empty where pv takes probabilities
    Kernel<PvArgs> pv;
    bool reads_value_scales = false;  // weights do, and value_scales, if there is one, is for negative scales
};

struct QuerySizes {  // of a row, in bytes of the query, and numbers of starts and factors
    size_t query, starts, factors;
    size_t step;  // bytes from where a row's query begins to where the next one's does
};

struct AmxTiles {  // before and behind all kernels that take tiles of AMX; empty where none does
    Kernel<NoArgs> begin, end;
};

struct DecodeKernels {          // few query rows against a block of cache rows; for one number of rows
    BlockKernels listed;        // any rows
    BlockKernels side_by_side;  // rows as `placement` says; empty where a side has blocks of tokens
    Placement placement = Placement::adjacent;
    Products query = Products::floats;  // what qk takes
    QuerySizes query_sizes{};
    std::vector<int> query_order;  // of words: query_word_order()
    float query_unit = 1;          // of floats: query_unit()
    Kernel<QueryArgs> query_row;   // empty where that is not of bytes, or not generated
    AmxTiles tiles;
    bool of_block = false;  // SoftmaxKey::of_block
    Kernel<SoftmaxArgs> softmax;
    Kernel<MinimaArgs> minima;  // empty where the format has none, or pv adds them
    int minima_at = 0;          // floats from the scales of values to them
};

// placement: of rows that lie side by side: runs or adjacent.
Status make_decode_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, const ScoreKey& scores,
                           Placement placement, DecodeKernels* kernels);

struct TileKernels {  // query rows in the lanes; for one width of panel
    Kernel<TileQkArgs> qk;
    Kernel<TileQkArgs> qk_softmax;  // empty where there is none (has_tile_qk_softmax)
    Kernel<TileSoftmaxArgs> softmax, softmax_masked;
    Kernel<TileWeightsArgs> weights;  // empty where pv takes what softmax gives
    Kernel<TilePvArgs> pv;
    Kernel<TilePvArgs> pv_lists;  // of values that are not packed (PackKernels::value_lists); else empty
};

struct PackKernels {                             // cache rows -> tiles for TileKernels
    Kernel<TokenRowsArgs> key_rows, value_rows;  // blocks of tokens -> rows; empty where the cache has rows
    Products key_products = Products::floats, value_products = Products::floats;
    bool probability_pairs = false;  // TileKernels::softmax leaves pairs of bfloat16 numbers
    Kernel<ScalesArgs> key_scales, value_scales;
    Kernel<TileScalesArgs> relate;  // of the values, where their weights are words or bytes; else empty
    bool value_lists = false;       // where no scale is negative, products may take the rows of the cache
    Kernel<PackArgs> keys, values;  // empty where products take the rows of the cache
    bool asks_ahead = false;        // both do, for lines of the next tile
};

struct PanelKernels {  // query rows into the lanes, outputs out of them
    AmxTiles tiles;
    Kernel<TileRowsArgs> rows;
    Kernel<TileQueryArgs> query;  // empty where the products of keys are of floats
    Kernel<TileColumnsArgs> output, states;
};

Status make_tile_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, const ScoreKey& scores,
                         int vecs, TileKernels* kernels);
// For `rows` query rows, one vector of them; values of bytes, or of words or numbers, which stay in the rows
// of the cache (has_tile_pv_rows, has_tile_pv_number_rows).
Status make_few_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, const ScoreKey& scores,
                        int rows, TileKernels* kernels);
Status make_pack_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, PackKernels* kernels);
// The same for few query rows.
Status make_few_pack_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values,
                             PackKernels* kernels);
// type: of queries and outputs.
Status make_panel_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, quire_type type,
                          PanelKernels* kernels);

struct BiasKernels {  // by the mask's type
    Kernel<TileBiasArgs> f32, f16, bf16;
    const Kernel<TileBiasArgs>& of(quire_type type) const {
        return type == QUIRE_F32 ? f32 : type == QUIRE_F16 ? f16 : bf16;
    }
};

Status make_bias_kernels(CodeCache& cache, const Target& target, BiasKernels* kernels);

// Of keys or values in blocks of tokens; empty for other formats.
Status make_token_rows(CodeCache& cache, const RowKey& blocks, Side side, Kernel<TokenRowsArgs>* kernel);
Status make_token_place(CodeCache& cache, const RowKey& blocks, Side side, Kernel<TokenPlaceArgs>* kernel);

struct ReadKernels {  // cache rows -> rows of another type; `rows` and `scales` are empty where there are
                      // no scales
    Kernel<TokenRowsArgs> taken;  // blocks of tokens -> rows, for the next two
    Kernel<ScalesArgs> scales;
    Kernel<PackArgs> rows;     // to f32 [count][V], in element order
    int stride = 0;            // V
    Kernel<AppendArgs> store;  // one row: f32, or the numbers of the cache, to `type`
};

Status make_read_kernels(CodeCache& cache, RowKey row, Side side, quire_type type, ReadKernels* kernels);

Status make_append_kernel(CodeCache& cache, const AppendKey& key, Kernel<AppendArgs>* kernel);
// dim: floats, a multiple of the target's lanes.
Status make_merge_kernel(CodeCache& cache, const Target& target, int dim, Kernel<MergeArgs>* kernel);
Status make_scale_row_kernel(CodeCache& cache, const ScaleRowKey& key, Kernel<ScaleRowArgs>* kernel);

}  // namespace quire::jit
