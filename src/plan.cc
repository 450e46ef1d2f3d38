#include "src/plan.h"

#include <algorithm>

#include "jit/byte_loader.h"
#include "jit/pack.h"
#include "jit/qk_amx.h"
#include "jit/scaled_amx.h"
#include "jit/weights.h"
#include "jit/weights_amx.h"
#include "jit/weights_bytes.h"
#include "jit/weights_fours.h"
#include "jit/word_loader.h"
#include "src/precision.h"
#include "src/select.h"

namespace quire {
namespace {

// Of bytes each key has three of 32 registers for a vector of query rows: with two vectors four keys share a
// load of the query, with three two would. With three AMX would wait longer behind each softmax
// (docs/performance.md, "Tiles of bfloat16 by AMX").
int widest_panel(const jit::RowKey& tile_keys, const jit::RowKey& tile_values) {
    if (tile_keys.target->vector_bits != 512) return jit::kMaxPanelVecs;
    if (tile_keys.bfloats() && tile_keys.target->amx) return 2;
    return tile_keys.bytes() && tile_values.bytes() ? 2 : jit::kMaxPanelVecs;
}

// Query panel, output panel and packed tiles of a thread stay within a second-level cache: large heads take
// fewer rows and keys.
void choose_tiles(AttentionPlan* plan, const jit::RowKey& tile_keys, const jit::RowKey& tile_values) {
    constexpr int kPanelFloats = 384 * 256;
    const int dims = plan->key_stride + plan->value_stride;
    plan->panel_vecs = widest_panel(tile_keys, tile_values);
    const int rows = std::min(kMaxTileRows, kPanelFloats / dims);
    plan->tile_rows = std::max(1, rows / plan->panel_rows()) * plan->panel_rows();
    const int values = plan->value_stride / (tile_values.products == jit::Products::floats ? 1 : 2);
    const int lanes = tile_keys.tile_lanes() + values;
    // With vectors of 512 bits it is 1 MB and more, but for a few desktop processors.
    const int most = (plan->target->vector_bits == 512 ? 256 : 128) * 256 / lanes;
    plan->tile_keys = std::clamp(most / jit::kKeyPadding * jit::kKeyPadding, 32, jit::kTileKeys);
}

// How the query is to be prepared for these keys.
void set_query_form(AttentionPlan* plan, const jit::RowKey& keys) {
    if (token_block_info(keys.format.type)) return;
    if (!jit::takes_fours(keys)) return;
    const jit::FoursForm form(keys);
    plan->fours[form.digits - 1] = form;
}

// How rows lie that follow each other in pages. Runs are of use to kernels whose turns do not cross them: QK
// of other keys takes three at a time, and is quicker with a list, as rows that hold their scales are. In
// large pages most blocks lie whole, and need no list at all.
jit::Placement placement_of(int64_t page_size, const jit::RowKey& keys) {
    const bool of_blocks = page_size % jit::kBlock == 0 || page_size >= 2 * jit::kBlock;
    const bool of_runs = !of_blocks && page_size % jit::kKeyPadding == 0;
    const bool whole_turns = takes_fours(keys) || takes_key_amx(keys);
    return of_runs && is_quantised(keys.format) && whole_turns ? jit::Placement::runs
                                                               : jit::Placement::adjacent;
}

Status make_kernels(AttentionPlan* plan, const jit::RowKey& keys, const jit::RowKey& values,
                    jit::CodeCache& cache) {
    const AttentionSpec& spec = plan->spec;
    jit::RowKey tile_keys = keys, tile_values = values;
    tile_keys.format = row_format(keys.format);
    tile_values.format = row_format(values.format);
    tile_keys.products = key_tile_products(tile_keys, spec.precision);
    tile_values.products = value_tile_products(tile_values, spec.precision);
    choose_tiles(plan, tile_keys, tile_values);
    plan->tile_key_lanes = tile_keys.tile_lanes();
    plan->rows_are_packed = jit::is_packed_row(tile_keys);
    jit::RowKey few_keys = few_key(tile_keys), few_values = few_key(tile_values);
    few_keys.products = key_tile_products(few_keys, spec.precision);
    few_values.products = few_value_products(few_key(values), spec.precision);
    plan->few_rows = most_few_rows(spec, *plan->target);
    plan->rest_rows = most_rest_rows(spec, *plan->target);
    const bool weights = tile_values.words() || tile_values.bytes() || plan->few_rows > 0;
    plan->tile_weight_groups = weights ? values.groups() : 0;
    for (bool bias : {false, true}) {
        const jit::ScoreKey scores{bias, spec.alibi, spec.soft_cap > 0};
        for (int rows = spec.group(); rows <= plan->decode_rows; rows += spec.group()) {
            jit::RowKey k = keys, v = values;
            k.rows = v.rows = rows;
            set_products(&k, &v, spec.precision);
            set_query_form(plan, k);
            QUIRE_TRY(make_decode_kernels(cache, k, v, scores, placement_of(spec.page_size, k),
                                          bias ? &plan->decode_bias[rows] : &plan->decode[rows]));
        }
        for (int rows = spec.group(); rows <= plan->few_rows; rows += spec.group()) {
            if (!plan->takes_few(rows)) continue;
            QUIRE_TRY(make_few_kernels(cache, few_keys, few_values, scores, rows,
                                       bias ? &plan->few_bias[rows] : &plan->few[rows]));
        }
        for (int vecs = 1; vecs <= jit::kMaxPanelVecs; ++vecs)
            QUIRE_TRY(make_tile_kernels(cache, tile_keys, tile_values, scores, vecs,
                                        bias ? &plan->tile_bias[vecs] : &plan->tile[vecs]));
    }
    QUIRE_TRY(make_bias_kernels(cache, *plan->target, &plan->mask_rows));
    QUIRE_TRY(make_panel_kernels(cache, tile_keys, tile_values, spec.type, &plan->panel));
    QUIRE_TRY(make_pack_kernels(cache, tile_keys, tile_values, &plan->pack));
    if (plan->few_rows > 0) {
        QUIRE_TRY(make_few_pack_kernels(cache, few_keys, few_values, &plan->few_pack));
        QUIRE_TRY(make_panel_kernels(cache, few_keys, few_values, spec.type, &plan->few_panel));
        plan->tile_key_lanes = std::max(plan->tile_key_lanes, few_keys.tile_lanes());
    }
    QUIRE_TRY(make_token_rows(cache, keys, Side::key, &plan->pack.key_rows));
    QUIRE_TRY(make_token_rows(cache, values, Side::value, &plan->pack.value_rows));
    QUIRE_TRY(make_merge_kernel(cache, *plan->target, plan->value_stride, &plan->merge));
    QUIRE_TRY(
        make_scale_row_kernel(cache, {plan->target, spec.type, QUIRE_F32, spec.D}, &plan->query_numbers));
    return make_scale_row_kernel(cache, {plan->target, QUIRE_F32, spec.type, spec.Dv}, &plan->output_numbers);
}

// Minima have as much room as scales, also where integer products take them apart.
int scale_stride(const jit::RowKey& key) {
    if (key.groups() == 0) return 0;
    return has_minima(key.format) ? std::max(key.scales_stride(), 2 * key.shared_lanes(key.groups()))
                                  : key.scales_stride();
}

Status fill_attention_plan(const AttentionSpec& spec, const Target& target, jit::CodeCache& cache,
                           AttentionPlan* plan) {
    *plan = AttentionPlan();
    plan->spec = spec;
    plan->target = &target;
    if (spec.alibi) plan->slopes = alibi_slopes(spec.H);
    if (!target.jit()) return {};
    const jit::RowKey keys{&target, spec.key_format, spec.D, 0},
        values{&target, spec.value_format, spec.Dv, 0};
    plan->key_stride = keys.padded();
    plan->value_stride = values.padded();
    plan->key_scale_stride = scale_stride(keys);
    plan->value_scale_stride = scale_stride(values);
    const bool lower = spec.precision != QUIRE_PRECISION_HIGHEST;
    if (lower && jit::has_words(values.format)) plan->weight_stride = values.weight_stride();
    if (jit::folds_scales(values)) plan->weight_stride = 2 * values.scales_stride();  // words, or float
    if ((!lower || has_minima(values.format)) && jit::has_value_fours(values))
        plan->weight_stride = std::max(plan->weight_stride, jit::ValueFours::weight_stride(values));
    if (jit::has_value_amx(values))
        plan->weight_stride = std::max(plan->weight_stride, jit::ValueAmx::weight_stride(values));
    if (token_block_info(values.format.type))
        plan->weight_stride = std::max(plan->weight_stride, 2 * values.groups());
    plan->decode_rows = most_decode_rows(spec, target);
    if (lower && jit::has_scaled_amx(values.format, values.dim, target))
        plan->weight_stride =
            std::max(plan->weight_stride, jit::ScaledValueAmx::weight_stride(values, plan->decode_rows));
    if (spec.precision == QUIRE_PRECISION_MEDIUM && jit::has_value_bytes(values))
        plan->weight_stride =
            std::max(plan->weight_stride, jit::value_bytes_stride(values, plan->decode_rows));
    if (spec.precision == QUIRE_PRECISION_MEDIUM && jit::has_scaled_words(values))
        plan->weight_stride =
            std::max(plan->weight_stride, jit::ScaledWords::weight_stride(values, plan->decode_rows));
    return make_kernels(plan, keys, values, cache);
}

}  // namespace

int64_t AttentionPlan::first_rows(int64_t rows) const {
    if (rows <= decode_rows || takes_few(rows) || rows > tile_rows) return rows;
    const int64_t lanes = target->lanes(), group = spec.group(), rest = rest_rows.of_decode / group * group;
    if (rows <= decode_rows + rest) return rows - rest;
    const int64_t whole = (rows - 1) / lanes * lanes / group * group;
    return whole > decode_rows && rows - whole <= rest_rows.of_tiles ? whole : rows;
}

Status make_attention_plan(const AttentionSpec& spec, const Target& target, jit::CodeCache& cache,
                           AttentionPlan* plan, std::string* notes) {
    QUIRE_TRY(select_target(
        "attention", target, [&](const Target& t) { return fill_attention_plan(spec, t, cache, plan); },
        notes));
    *notes += precision_note(spec, *plan->target);
    return {};
}

Status make_append_plan(const char* name, const AppendSpec& spec, const Target& target, jit::CodeCache& cache,
                        AppendPlan* plan, std::string* notes) {
    return select_target(
        name, target,
        [&](const Target& t) -> Status {
            *plan = AppendPlan();
            plan->spec = spec;
            plan->target = &t;
            if (!t.jit()) return {};
            const jit::AppendKey key{&t, spec.type, row_format(spec.key_format), spec.D, spec.key_rotation};
            const jit::AppendKey value{&t, spec.type, row_format(spec.value_format), spec.Dv,
                                       spec.value_rotation};
            plan->kernel_floats = size_t(std::max(key.scratch_floats(), value.scratch_floats()));
            QUIRE_TRY(make_append_kernel(cache, key, &plan->key));
            QUIRE_TRY(make_token_place(cache, {&t, spec.key_format, spec.D, 0}, Side::key, &plan->key_place));
            if (spec.Dv == 0) return {};
            QUIRE_TRY(make_append_kernel(cache, value, &plan->value));
            return make_token_place(cache, {&t, spec.value_format, spec.Dv, 0}, Side::value,
                                    &plan->value_place);
        },
        notes);
}

Status make_read_plan(const ReadSpec& spec, const Target& target, jit::CodeCache& cache, ReadPlan* plan,
                      std::string* notes) {
    return select_target(
        "read", target,
        [&](const Target& t) -> Status {
            *plan = ReadPlan();
            plan->spec = spec;
            plan->target = &t;
            if (!t.jit()) return {};
            const jit::RowKey key{&t, spec.key_format, spec.D, 0}, value{&t, spec.value_format, spec.Dv, 0};
            plan->scale_stride = std::max(key.scales_stride(), value.scales_stride());
            QUIRE_TRY(make_read_kernels(cache, key, Side::key, spec.type, &plan->key));
            return make_read_kernels(cache, value, Side::value, spec.type, &plan->value);
        },
        notes);
}

}  // namespace quire
