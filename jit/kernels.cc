// Kernels of tiles, panels and the rest; decode's are in jit/kernels_decode.cc.
#include <algorithm>

#include "jit/append.h"
#include "jit/kernels_make.h"
#include "jit/merge.h"
#include "jit/pack.h"
#include "jit/softmax.h"
#include "jit/tile_bias.h"
#include "jit/tile_bytes.h"
#include "jit/tile_products.h"
#include "jit/tile_qk_softmax.h"
#include "jit/tile_query.h"
#include "jit/tile_rows.h"
#include "jit/tile_value_bytes.h"
#include "jit/tile_words.h"
#include "jit/token_place.h"
#include "jit/token_rows.h"

namespace quire::jit {
namespace {

// The fewer vectors of query rows, the fewer products there are for a line of the cache.
TileKey tile_key(const RowKey& key, int vecs) {
    TileKey tile{key.target, key.dim, key.tile_lanes(), vecs, key.products};
    if (tile.bfloats() && key.target->amx) return tile;  // asks with each step of some 50 cycles
    const int elements = int(kLineBytes * size_t(key.dim) / bytes_of(key.format.type, key.dim));
    tile.of_a_line = std::min(kMostOfALine, elements / tile.numbers_a_lane() * vecs);
    return tile;
}

std::string tile_name(const char* stage, const TileKey& key) {
    const std::string ahead = key.of_a_line < kMostOfALine ? "_a" + std::to_string(key.of_a_line) : "";
    return std::string(stage) + "_d" + std::to_string(key.dim) + "_stride" + std::to_string(key.key_stride) +
           "_w" + std::to_string(key.vecs) + ahead + products_name(key.products) + "_" + key.target->name;
}

Status make_tile_qk(CodeCache& cache, RowKey keys, int vecs, Kernel<TileQkArgs>* kernel) {
    keys.rows = vecs;
    if (keys.words() || keys.query_bytes() > 0) {
        const auto generate = keys.words() ? generate_tile_qk_words : generate_tile_qk_bytes;
        return make(
            cache, keys.name(keys.packs_keys ? "tile_qk_rows" : "tile_qk"),
            [&](auto* code) { return generate(keys, code); }, kernel);
    }
    const TileKey key = tile_key(keys, vecs);
    return make(
        cache, tile_name("tile_qk", key), [&](auto* code) { return generate_tile_qk(key, code); }, kernel);
}

Status make_tile_weights(CodeCache& cache, RowKey values, int vecs, TileKernels* kernels) {
    values.rows = vecs;
    return make(
        cache, values.name("tile_weights"),
        [&](auto* code) {
            return values.bytes() ? generate_tile_byte_weights(values, code)
                                  : generate_tile_weights(values, code);
        },
        &kernels->weights);
}

Status make_tile_pv(CodeCache& cache, RowKey values, int vecs, TileKernels* kernels) {
    values.rows = vecs;
    if (values.words() || values.bytes()) {
        QUIRE_TRY(make_tile_weights(cache, values, vecs, kernels));
        const auto generate = values.words() ? generate_tile_pv_words : generate_tile_pv_bytes;
        return make(
            cache, values.name("tile_pv"), [&](auto* code) { return generate(values, code); }, &kernels->pv);
    }
    const TileKey key = tile_key(values, vecs);
    return make(
        cache, tile_name("tile_pv", key), [&](auto* code) { return generate_tile_pv(key, code); },
        &kernels->pv);
}

Products probabilities_for(const RowKey& values) {
    return takes_bfloat_pairs(values) ? Products::bfloats : values.products;
}

// Of scores that nothing changes.
Status make_tile_qk_softmax(CodeCache& cache, const RowKey& keys, const RowKey& values,
                            const ScoreKey& scores, int vecs, Kernel<TileQkArgs>* kernel) {
    const Products probabilities = probabilities_for(values);
    if (keys.words() || keys.query_bytes() > 0 || values.words() || values.bytes()) return {};
    const TileKey key = tile_key(keys, vecs);
    if (scores.alibi || scores.soft_cap || scores.bias || !has_tile_qk_softmax(key)) return {};
    const bool pairs = probabilities == Products::bfloats;
    return make(
        cache, tile_name(pairs ? "tile_qk_softmax_pairs" : "tile_qk_softmax", key),
        [&](auto* code) { return generate_tile_qk_softmax(key, probabilities, code); }, kernel);
}

Status make_tile_softmax(CodeCache& cache, TileSoftmaxKey key, TileKernels* kernels) {
    for (bool masked : {false, true}) {
        key.masked = masked;
        QUIRE_TRY(make(
            cache, key.name(), [&](auto* code) { return generate_tile_softmax(key, code); },
            masked ? &kernels->softmax_masked : &kernels->softmax));
    }
    return {};
}

}  // namespace

Status make_tile_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, const ScoreKey& scores,
                         int vecs, TileKernels* kernels) {
    QUIRE_TRY(make_tile_qk(cache, keys, vecs, &kernels->qk));
    QUIRE_TRY(make_tile_qk_softmax(cache, keys, values, scores, vecs, &kernels->qk_softmax));
    QUIRE_TRY(make_tile_pv(cache, values, vecs, kernels));
    const bool of_amx = keys.bfloats() && values.bfloats() && keys.target->amx;
    return make_tile_softmax(cache, {keys.target, scores, vecs, false, probabilities_for(values), of_amx},
                             kernels);
}

Status make_few_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, const ScoreKey& scores,
                        int rows, TileKernels* kernels) {
    constexpr int kVecs = 1;
    RowKey of_rows = values;
    of_rows.rows = rows;
    const bool weighs = values.words() || values.bytes();
    RowKey rows_of_keys = keys;
    rows_of_keys.packs_keys = keys.query_bytes() > 0;
    QUIRE_TRY(make_tile_qk(cache, rows_of_keys, kVecs, &kernels->qk));
    if (weighs) QUIRE_TRY(make_tile_weights(cache, values, kVecs, kernels));
    const auto generate = values.bytes() ? generate_tile_pv_byte_rows
                          : weighs       ? generate_tile_pv_rows
                                         : generate_tile_pv_number_rows;
    QUIRE_TRY(make(
        cache, of_rows.name("tile_pv_rows"), [&](auto* code) { return generate(of_rows, code); },
        &kernels->pv));
    if (values.bytes() && has_tile_pv_byte_lists(values))
        QUIRE_TRY(make(
            cache, of_rows.name("tile_pv_lists"),
            [&](auto* code) { return generate_tile_pv_byte_lists(of_rows, code); }, &kernels->pv_lists));
    return make_tile_softmax(cache, {keys.target, scores, kVecs, false, probabilities_for(values)}, kernels);
}

namespace {

Status make_scales_of_both(CodeCache& cache, const RowKey& keys, const RowKey& values, PackKernels* kernels) {
    kernels->key_products = keys.products;
    kernels->value_products = values.products;
    kernels->probability_pairs = probabilities_for(values) == Products::bfloats;
    // Sums of codes are scaled, not numbers.
    QUIRE_TRY(make_scales(cache, keys.bfloats() ? plain(keys) : keys, &kernels->key_scales));
    QUIRE_TRY(make_scales(cache, plain(values), &kernels->value_scales));
    if (values.words() || values.bytes())
        QUIRE_TRY(make(
            cache, values.name("tile_scales"), [&](auto* code) { return generate_tile_scales(values, code); },
            &kernels->relate));
    return {};
}

Status make_pack_keys(CodeCache& cache, const RowKey& keys, PackKernels* kernels) {
    return make(
        cache, keys.name("pack_keys"), [&](auto* code) { return generate_pack_keys(keys, code); },
        &kernels->keys);
}

Status make_pack_values(CodeCache& cache, const RowKey& values, PackKernels* kernels) {
    return make(
        cache, values.name("pack_values"), [&](auto* code) { return generate_pack_values(values, code); },
        &kernels->values);
}

}  // namespace

Status make_pack_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, PackKernels* kernels) {
    QUIRE_TRY(make_scales_of_both(cache, keys, values, kernels));
    QUIRE_TRY(make_pack_keys(cache, keys, kernels));
    kernels->asks_ahead = asks_ahead(keys) && asks_ahead(values);
    return make_pack_values(cache, values, kernels);
}

Status make_few_pack_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values,
                             PackKernels* kernels) {
    QUIRE_TRY(make_scales_of_both(cache, keys, values, kernels));
    if (keys.query_bytes() == 0) QUIRE_TRY(make_pack_keys(cache, keys, kernels));
    kernels->value_lists = values.bytes() && has_tile_pv_byte_lists(values);
    return values.bytes() ? make_pack_values(cache, values, kernels) : Status();
}

Status make_amx_tiles(CodeCache& cache, const Target& target, AmxTiles* tiles) {
    QUIRE_TRY(make(
        cache, std::string("tiles_begin_") + target.name,
        [&](auto* code) { return generate_tiles_begin(target, code); }, &tiles->begin));
    return make(
        cache, std::string("tiles_end_") + target.name,
        [&](auto* code) { return generate_tiles_end(target, code); }, &tiles->end);
}

Status make_panel_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, quire_type type,
                          PanelKernels* kernels) {
    const Target& target = *keys.target;
    if (target.amx && (keys.bfloats() || values.bfloats()))
        QUIRE_TRY(make_amx_tiles(cache, target, &kernels->tiles));
    const auto name = [&](const char* stage, int dim, quire_type of) {
        return std::string(stage) + "_d" + std::to_string(dim) + "_" + type_name(of) + "_" + target.name;
    };
    QUIRE_TRY(make(
        cache, name("tile_rows", keys.dim, type),
        [&](auto* code) { return generate_tile_rows(target, type, keys.dim, code); }, &kernels->rows));
    if (keys.products != Products::floats)
        QUIRE_TRY(make(
            cache, keys.name("tile_query"), [&](auto* code) { return generate_tile_query(keys, code); },
            &kernels->query));
    for (const auto& [of, kernel] :
         {std::pair(type, &kernels->output), std::pair(QUIRE_F32, &kernels->states)}) {
        const quire_type to = of;
        QUIRE_TRY(make(
            cache, name("tile_columns", values.dim, to),
            [&](auto* code) { return generate_tile_columns(target, to, values.dim, code); }, kernel));
    }
    return {};
}

Status make_token_rows(CodeCache& cache, const RowKey& blocks, Side side, Kernel<TokenRowsArgs>* kernel) {
    if (!token_block_info(blocks.format.type)) return {};
    return make(
        cache, blocks.name(side == Side::key ? "token_rows_k" : "token_rows_v"),
        [&](auto* code) { return generate_token_rows(blocks, side, code); }, kernel);
}

Status make_token_place(CodeCache& cache, const RowKey& blocks, Side side, Kernel<TokenPlaceArgs>* kernel) {
    if (token_block_info(blocks.format.type) == nullptr) return {};
    return make(
        cache, blocks.name(side == Side::key ? "token_place_k" : "token_place_v"),
        [&](auto* code) { return generate_token_place(blocks, side, code); }, kernel);
}

Status make_read_kernels(CodeCache& cache, RowKey row, Side side, quire_type type, ReadKernels* kernels) {
    QUIRE_TRY(make_token_rows(cache, row, side, &kernels->taken));
    row.format = row_format(row.format);
    quire_type stored = row.format.type;
    kernels->stride = row.padded();
    if (row.groups() > 0) {
        stored = QUIRE_F32;
        QUIRE_TRY(make_scales(cache, row, &kernels->scales));
        QUIRE_TRY(make(
            cache, row.name("pack_keys"), [&](auto* code) { return generate_pack_keys(row, code); },
            &kernels->rows));
    }
    const AppendKey store{row.target, stored, {type, 0, QUIRE_NONE}, row.dim};
    return make_append_kernel(cache, store, &kernels->store);
}

Status make_append_kernel(CodeCache& cache, const AppendKey& key, Kernel<AppendArgs>* kernel) {
    return make(
        cache, key.name(), [&](auto* code) { return generate_append(key, code); }, kernel);
}

Status make_bias_kernels(CodeCache& cache, const Target& target, BiasKernels* kernels) {
    for (const auto& [type, kernel] :
         {std::pair(QUIRE_F32, &kernels->f32), std::pair(QUIRE_F16, &kernels->f16),
          std::pair(QUIRE_BF16, &kernels->bf16)}) {
        const std::string name = std::string("tile_bias_") + type_name(type) + "_" + target.name;
        const quire_type of = type;
        QUIRE_TRY(make(
            cache, name, [&](auto* code) { return generate_tile_bias(target, of, code); }, kernel));
    }
    return {};
}

Status make_merge_kernel(CodeCache& cache, const Target& target, int dim, Kernel<MergeArgs>* kernel) {
    const std::string name = "merge_d" + std::to_string(dim) + "_" + target.name;
    return make(
        cache, name, [&](auto* code) { return generate_merge(target, dim, code); }, kernel);
}

Status make_scale_row_kernel(CodeCache& cache, const ScaleRowKey& key, Kernel<ScaleRowArgs>* kernel) {
    return make(
        cache, key.name(), [&](auto* code) { return generate_scale_row(key, code); }, kernel);
}

}  // namespace quire::jit
