// Kernels of decode; those of tiles, panels and the rest are in jit/kernels.cc.
#include "jit/amx.h"
#include "jit/kernels_make.h"
#include "jit/minima.h"
#include "jit/pv.h"
#include "jit/qk.h"
#include "jit/qk_amx.h"
#include "jit/qk_fours.h"
#include "jit/query_fours.h"
#include "jit/query_tokens.h"
#include "jit/softmax.h"
#include "jit/token_pv.h"
#include "jit/token_qk.h"
#include "jit/token_qk_amx.h"
#include "jit/token_weights.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"

namespace quire::jit {
namespace {

QuerySizes sizes_of(const FoursForm& form) {
    const size_t lanes = size_t(form.lanes);
    const size_t bytes = size_t(form.vectors()) * lanes * 4;
    return {bytes, size_t(form.starts()) * lanes, form.digits == 1 ? size_t(form.factors()) * lanes : 1,
            bytes};
}
// Rows stand side by side in tiles: a row's share of their bytes, in whole lines.
QuerySizes sizes_of(const KeyAmx& form) {
    constexpr int kLine = 64;
    const int share = (form.query_bytes() / kLine + form.rows) / form.rows * kLine;
    return {size_t(share), size_t(form.digits * form.plane_bytes() / 4), 1, size_t(form.row_step())};
}
QuerySizes sizes_of(const TokenKeyAmx& form) {
    constexpr int kLine = TokenKeyAmx::kLine;
    const int share = (form.query_bytes() / kLine + form.rows - 1) / form.rows * kLine;
    return {size_t(share), size_t(form.digits * form.plane_bytes() / 4), 1, size_t(kLine)};
}
QuerySizes sizes_of(const TokenBytesForm& form) {
    return {size_t(form.bytes()), size_t(form.starts()), size_t(form.factors()), size_t(form.bytes())};
}
QuerySizes query_sizes(const RowKey& keys) {
    if (takes_key_amx(keys)) return sizes_of(KeyAmx(keys));
    if (takes_token_key_amx(keys)) return sizes_of(TokenKeyAmx(keys));
    if (keys.query_bytes() > 0)
        return token_block_info(keys.format.type) ? sizes_of(TokenBytesForm(keys))
                                                  : sizes_of(FoursForm(keys));
    const size_t bytes = keys.words() ? size_t(keys.query_words()) * 2 : size_t(keys.padded()) * 4;
    return {bytes, 0, keys.words() ? 1u : 0u, bytes};
}

void set_query(const RowKey& keys, DecodeKernels* kernels) {
    kernels->query = keys.products;
    kernels->query_sizes = query_sizes(keys);
    if (keys.words()) kernels->query_order = query_word_order(keys);
    kernels->query_unit = query_unit(keys);
}

Status make_query(CodeCache& cache, const char* stage, const RowKey& keys,
                  Status (*generate)(const RowKey&, std::vector<uint8_t>*), DecodeKernels* kernels) {
    return make(
        cache, keys.name(stage), [&](auto* code) { return generate(keys, code); }, &kernels->query_row);
}

RowKey of_any_rows(RowKey keys) {
    keys.rows = 0;
    return keys;
}

// Of blocks of tokens.
Status make_token_qk(CodeCache& cache, const RowKey& keys, DecodeKernels* kernels) {
    set_query(keys, kernels);
    if (takes_token_key_amx(keys))
        QUIRE_TRY(make_query(cache, "query_token_amx", keys, generate_query_token_amx, kernels));
    if (keys.query_bytes() > 0)
        QUIRE_TRY(make_query(cache, "query_tokens", of_any_rows(keys), generate_query_tokens, kernels));
    return make(
        cache, keys.name("token_qk"), [&](auto* code) { return generate_token_qk(keys, code); },
        &kernels->listed.qk);
}

// Where keys are bytes (`medium`), weights are products of words: jit/weights_emitter.h.
RowKey weights_of(const RowKey& keys, RowKey values) {
    if (values.products == Products::words && keys.bytes()) values.products = Products::bytes;
    return values;
}

Status make_token_weights(CodeCache& cache, const RowKey& keys, const RowKey& values,
                          Kernel<WeightsArgs>* kernel) {
    if (values.products == Products::three_bytes)
        return make(
            cache, values.name("token_weights"),
            [&](auto* code) { return generate_weights_fours(values, code); }, kernel);
    if (takes_value_amx(values))
        return make(
            cache, values.name("token_weights"),
            [&](auto* code) { return generate_weights_amx(values, code); }, kernel);
    if (values.bytes())
        return make(
            cache, values.name("token_weights_of"),
            [&](auto* code) { return generate_token_weights_bytes(values, code); }, kernel);
    if (!token_weights_fold(values)) return {};
    const RowKey weights = weights_of(keys, values);
    return make(
        cache, weights.name("token_weights"),
        [&](auto* code) { return generate_token_weights(weights, code); }, kernel);
}

Status make_token_pv(CodeCache& cache, const RowKey& keys, const RowKey& values, DecodeKernels* kernels) {
    kernels->listed.reads_value_scales = reads_value_scales(values);
    if (!kernels->listed.reads_value_scales) {
        RowKey scales = values;
        scales.rows = 0;
        scales.products = Products::floats;
        QUIRE_TRY(make(
            cache, scales.name("token_scales"),
            [&](auto* code) { return generate_token_scales(scales, code); }, &kernels->listed.value_scales));
    }
    QUIRE_TRY(make_token_weights(cache, keys, values, &kernels->listed.weights));
    return make(
        cache, values.name("token_pv"), [&](auto* code) { return generate_token_pv(values, code); },
        &kernels->listed.pv);
}

Status make_block_qk(CodeCache& cache, const RowKey& keys, BlockKernels* kernels) {
    if (!makes_scales(keys) && !reads_scales(keys)) QUIRE_TRY(make_scales(cache, keys, &kernels->key_scales));
    return make(
        cache, keys.name("decode_qk"), [&](auto* code) { return generate_qk(keys, code); }, &kernels->qk);
}

Status make_row_qk(CodeCache& cache, const RowKey& keys, DecodeKernels* kernels) {
    set_query(keys, kernels);
    if (takes_key_amx(keys)) QUIRE_TRY(make_query(cache, "query_amx", keys, generate_query_amx, kernels));
    if (has_query_fours(keys))
        QUIRE_TRY(make_query(cache, "query_fours", of_any_rows(keys), generate_query_fours, kernels));
    return make_block_qk(cache, keys, &kernels->listed);
}

// Of adjacent rows where they take the scales of those; else the same for all.
Status make_row_weights(CodeCache& cache, const RowKey& keys, RowKey values, Kernel<WeightsArgs>* kernel) {
    if (!reads_value_scales(values)) values.placement = Placement::listed;
    if (values.bytes())
        return make(
            cache, values.name("decode_weights_of"),
            [&](auto* code) { return generate_weights_bytes(values, code); }, kernel);
    if (values.products == Products::floats && !folds_scales(values)) return {};
    const RowKey weights = weights_of(keys, values);
    return make(
        cache, weights.name("decode_weights"), [&](auto* code) { return generate_weights(weights, code); },
        kernel);
}

Status make_block_pv(CodeCache& cache, const RowKey& keys, const RowKey& values, BlockKernels* kernels) {
    kernels->reads_value_scales = reads_value_scales(values);
    if (!kernels->reads_value_scales || values.bytes())
        QUIRE_TRY(
            make_scales(cache, values.has_minima_apart() ? values : plain(values), &kernels->value_scales));
    QUIRE_TRY(make_row_weights(cache, keys, values, &kernels->weights));
    return make(
        cache, values.name("decode_pv"), [&](auto* code) { return generate_pv(values, code); }, &kernels->pv);
}

Status make_row_pv(CodeCache& cache, const RowKey& keys, const RowKey& values, DecodeKernels* kernels) {
    if (values.has_minima_apart()) {
        kernels->minima_at = values.minima_at();
        QUIRE_TRY(make(
            cache, values.name("decode_minima"), [&](auto* code) { return generate_minima(values, code); },
            &kernels->minima));
    }
    return make_block_pv(cache, keys, values, &kernels->listed);
}

Status make_side_by_side(CodeCache& cache, RowKey keys, RowKey values, Placement placement,
                         BlockKernels* kernels) {
    if (token_block_info(keys.format.type) || token_block_info(values.format.type)) return {};
    keys.placement = values.placement = placement;
    QUIRE_TRY(make_block_qk(cache, keys, kernels));
    return make_block_pv(cache, keys, values, kernels);
}

}  // namespace

Status make_decode_kernels(CodeCache& cache, const RowKey& keys, const RowKey& values, const ScoreKey& scores,
                           Placement placement, DecodeKernels* kernels) {
    QUIRE_TRY(token_block_info(keys.format.type) ? make_token_qk(cache, keys, kernels)
                                                 : make_row_qk(cache, keys, kernels));
    QUIRE_TRY(token_block_info(values.format.type) ? make_token_pv(cache, keys, values, kernels)
                                                   : make_row_pv(cache, keys, values, kernels));
    QUIRE_TRY(make_side_by_side(cache, keys, values, placement, &kernels->side_by_side));
    if (takes_key_amx(keys) || takes_token_key_amx(keys) || takes_value_amx(values))
        QUIRE_TRY(make_amx_tiles(cache, *keys.target, &kernels->tiles));
    kernels->placement = placement;
    kernels->of_block = values.words() || values.bytes();
    const SoftmaxKey softmax{keys.target, scores, kernels->of_block};
    return make(
        cache, softmax.name(), [&](auto* code) { return generate_softmax(softmax, code); },
        &kernels->softmax);
}

}  // namespace quire::jit
