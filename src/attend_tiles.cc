// Prefill, and any call with more query rows a kv head than decode takes. Query rows lie in the lanes: for
// each tile of keys, K and V are dequantised and packed once (V not for few rows, of one panel, but as
// bytes), then every panel of query rows runs over the tile. A panel starts and stops at its own first and
// last visible key; masks run only where a panel needs them.
#include <algorithm>

#include "src/attend_panels.h"
#include "src/attend_query_rows.h"
#include "src/half.h"

namespace quire {
namespace {

size_t taken_floats(const AttentionPlan& plan) {
    return std::max(TakenRows::floats(plan.spec.key_format, plan.spec.D),
                    TakenRows::floats(plan.spec.value_format, plan.spec.Dv));
}

bool of_bytes(const jit::PackKernels& pack) { return pack.value_products == jit::Products::bytes; }

// Floats of TileState::weights, tops and weight_factors.
struct WeightFloats {
    explicit WeightFloats(const AttentionPlan& plan) {
        const size_t groups = size_t(plan.tile_weight_groups), lanes = size_t(plan.panel_rows());
        const bool words = plan.pack.value_products == jit::Products::words,
                   bytes = of_bytes(plan.pack) || of_bytes(plan.few_pack);
        const bool few_words = plan.few_pack.value_products == jit::Products::words;
        const int pairs = words       ? jit::tile_weight_stride(int(lanes))
                          : few_words ? jit::tile_weight_stride(plan.few_rows)
                                      : 0;
        const int fours = bytes ? jit::tile_byte_weight_stride(int(lanes)) : 0;
        const bool few_numbers = plan.few_rows > 0 && plan.few_pack.value_products == jit::Products::floats;
        const size_t runs = bytes ? jit::kWeightRuns : 1;
        weights = std::max(groups * size_t(std::max(pairs, fours)),
                           few_numbers ? size_t(2 * jit::kTileKeys * plan.target->lanes()) : 0);
        tops = groups * runs;
        factors = std::max(size_t(1), bytes ? tops : 1) * lanes;
    }
    size_t all() const { return weights + tops + factors; }
    size_t weights, tops, factors;
};

// Floats of TileState::columns.
size_t column_floats(const AttentionPlan& plan) {
    return plan.panel.query || plan.few_panel.query ? size_t(plan.spec.D * plan.target->lanes()) : 0;
}

size_t max_panels(const AttentionPlan& plan) { return size_t(plan.tile_rows / plan.panel_rows()); }

TileState allocate(const AttentionPlan& plan, bool few, Scratch& scratch) {
    TileState s;
    scratch.reset();
    s.few = few;
    s.mask_asked = nullptr;
    s.asks_early = false;
    s.pack = few ? &plan.few_pack : &plan.pack;
    s.taken = TakenRows(taken_floats(plan), scratch);
    const size_t lanes = size_t(plan.panel_rows()), keys = size_t(plan.tile_keys);
    s.panels = scratch.array<Panel>(max_panels(plan));
    s.keys = scratch.floats(keys * size_t(plan.tile_key_lanes));
    s.values = scratch.floats(jit::kPanelStride * size_t(plan.value_stride / jit::kValuePanel));
    s.key_scales = scratch.floats(keys * size_t(plan.key_scale_stride) + 16);
    s.value_scales = scratch.floats(keys * size_t(plan.value_scale_stride) + 16);
    const WeightFloats floats(plan);
    s.tops = scratch.floats(floats.tops);
    s.weight_factors = scratch.floats(floats.factors);
    s.scores = scratch.floats(keys * lanes);
    s.weights = scratch.floats(floats.weights);
    s.bias = scratch.floats(keys * lanes);
    s.new_max = scratch.floats(lanes);
    s.rescale = scratch.floats(lanes);
    s.scaled_top = scratch.floats(lanes);
    s.total = scratch.floats(lanes);
    s.slope = scratch.floats(lanes);
    s.distance = scratch.floats(lanes);
    s.begin = scratch.array<int32_t>(lanes);
    s.end = scratch.array<int32_t>(lanes);
    s.columns = scratch.floats(column_floats(plan));
    s.spare_row = scratch.floats(size_t(plan.value_stride));
    s.bias_rows = scratch.floats(4 * jit::kTileKeys);
    s.addresses = scratch.array<RowAddresses>(1);
    s.next = scratch.array<RowAddresses>(1);
    s.next_queries = scratch.array<const char*>(lanes);
    s.ahead = scratch.array<Ahead>(1);
    return s;
}

const jit::TileKernels& kernels_of(const AttentionPlan& plan, const Panel& panel, bool bias,
                                   const TileState& s) {
    if (s.few) return bias ? plan.few_bias[panel.rows] : plan.few[panel.rows];
    return bias ? plan.tile_bias[panel.vecs] : plan.tile[panel.vecs];
}

int64_t whole(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

// By TileState::end, where bounds are set.
jit::SeenKeys seen_keys(const AttentionPlan& plan, const Panel& panel, bool bounded, int64_t count,
                        const TileState& s) {
    jit::SeenKeys seen;
    seen.fill(count);
    const int lanes = plan.target->lanes();
    int32_t most = 0;
    for (int w = 0; bounded && w + 1 < panel.vecs; ++w) {
        for (int i = 0; i < lanes; ++i) most = std::max(most, s.end[w * lanes + i]);
        seen[size_t(w)] = most;
    }
    return seen;
}

jit::SeenKeys in_steps(jit::SeenKeys seen, int64_t step) {
    for (int64_t& keys : seen) keys = whole(keys, step);
    return seen;
}

// is_first: no tile has been added to the panel's output yet.
void add_values(const AttentionPlan& plan, const jit::TileKernels& kernels, const Panel& panel, int64_t count,
                const jit::SeenKeys& seen, bool is_first, const TileState& s, jit::LinesAhead* ahead) {
    const int64_t panels = (plan.spec.Dv + jit::kValuePanel - 1) / jit::kValuePanel;
    if (kernels.weights)
        kernels.weights({s.scores, s.value_scales, s.weights, s.weight_factors, s.tops, count});
    const auto& pv = s.value_lists ? kernels.pv_lists : kernels.pv;
    pv({kernels.weights ? static_cast<const void*>(s.weights) : s.scores, s.packed,
        is_first ? nullptr : s.rescale, panel.output, count, panels, s.weight_factors, s.tops, ahead,
        s.value_scales, s.value_lists ? s.values : s.weights, seen});
}

// QK and softmax in one. False where the tile's scores are too large for it: then the next tile is not tried.
bool score_relative(const jit::TileKernels& kernels, jit::TileQkArgs qk, Panel& panel, const TileState& s) {
    if (!kernels.qk_softmax || panel.wary) {
        panel.wary = false;
        return false;
    }
    jit::RelativeTops relative{panel.max, panel.top, panel.sum, s.rescale, s.scaled_top, s.total, 0};
    qk.relative = &relative;
    kernels.qk_softmax(qk);
    panel.wary = relative.fails != 0;
    return !panel.wary;
}

struct Seen {  // of a tile, by a panel
    int64_t begin, count;
    bool bias, masked;
    int64_t plain;  // of keys, as jit::TileSoftmaxArgs
};

// QK, what changes scores, and softmax.
void score_apart(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, Panel& panel,
                 const Seen& seen, const jit::TileQkArgs& qk, TileState& s) {
    std::copy_n(panel.max, panel.lanes, s.new_max);
    kernels_of(plan, panel, false, s).qk(qk);
    if (seen.bias && panel.mask) s.asks_early = s.asks_early || !s.ahead->is_past_mark();
    const bool has_bias = seen.bias && !add_terms(plan, p, item, panel, seen.begin, seen.count, s);
    const jit::TileKernels& kernels = kernels_of(plan, panel, has_bias, s);
    // That of QK, or with a bias, is of too many keys or too few.
    const bool finds_max =
        seen.masked || (seen.bias ? seen.count % jit::kBiasKeys != 0 : seen.count != qk.count);
    const int64_t count = s.pack->probability_pairs ? whole(seen.count, jit::kKeyPadding) : seen.count;
    (finds_max ? kernels.softmax_masked : kernels.softmax)(
        {s.scores, s.bias, s.begin, s.end, s.slope, s.distance, panel.max, s.new_max, panel.sum, s.rescale,
         count, seen.plain, cap_factor(plan.spec)});
}

void attend_panel(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, int64_t index,
                  int64_t begin, int64_t tile_count, TileState& s) {
    Panel& panel = s.panels[index];
    const int64_t count = std::min(tile_count, panel.any.end - begin);
    if (!panel.sees(begin, tile_count)) return;
    const int64_t padded = whole(count, jit::kKeyPadding);
    const bool pairs = s.pack->probability_pairs;
    const BlockView view = p.look(item.b, panel.first_query, panel.last_query, begin, count);
    if (!view.seen) return;
    const WithoutSubnormals flush;
    const bool is_first = !panel.begun;
    if (is_first) begin_panel(plan, panel, s);
    const bool all_from_begin = !view.ragged && begin >= panel.all.begin;
    const int64_t plain = all_from_begin ? std::clamp<int64_t>(panel.all.end - begin, 0, count) : 0;
    const bool masked = plain < count || (pairs && padded != count);
    if (masked || plan.spec.alibi) set_bounds(plan, p, item, panel, begin, count, s);
    s.ahead->clear();
    if (view.bias && panel.mask) look_ahead_at_mask(p, index, begin, tile_count, s);
    look_ahead(plan, index, begin + 2 * tile_count >= panel.any.end, s);
    jit::LinesAhead* const ahead = s.ahead->begin();
    const int64_t scored = whole(count, jit::kTileStep);
    const jit::SeenKeys seen = seen_keys(plan, panel, masked, count, s);
    const jit::TileQkArgs qk{panel.query, s.packed_keys, s.scores,
                             scored,      s.key_scales,  panel.factors,
                             s.new_max,   ahead,         in_steps(seen, jit::kTileStep),
                             nullptr,     s.keys};
    const jit::TileKernels& kernels = kernels_of(plan, panel, false, s);
    const bool is_plain = !masked && !view.bias && count == scored;
    if (is_first || !is_plain || !score_relative(kernels, qk, panel, s))
        score_apart(plan, p, item, panel, {begin, count, view.bias, masked, plain}, qk, s);
    if (p.dropout) drop_panel(p, item, panel, begin, count, s);
    const bool whole_runs = kernels.weights || s.few || pairs;
    if (whole_runs && !pairs) std::fill(s.scores + count * panel.lanes, s.scores + padded * panel.lanes, 0.f);
    add_values(plan, kernels, panel, whole_runs ? padded : count, in_steps(seen, pairs ? 2 : 1), is_first, s,
               ahead);
    s.ahead->finish();
}

// The keys in the cache, where they lie as packing would put them: side by side, and so many that products
// read no others.
const float* packed_in_cache(const AttentionPlan& plan, const RowAddresses& rows) {
    if (!plan.rows_are_packed || rows.count % jit::kTileStep != 0) return nullptr;
    for (int64_t i = 1; i < rows.count; ++i)
        if (rows.key[i] - rows.key[i - 1] != plan.tile_key_lanes * 4) return nullptr;
    return reinterpret_cast<const float*>(rows.key[0]);
}

// By signs, that of NaN as well. Rows of scales are padded with 0.
bool any_negative(const float* scales, int64_t count) {
    uint32_t bits = 0;
    for (int64_t i = 0; i < count; ++i) bits |= float_bits(scales[i]);
    return bits >> 31 != 0;
}

void pack_tile(const AttentionPlan& plan, const RowAddresses& rows, TileState& s) {
    const AttentionSpec& spec = plan.spec;
    const jit::PackKernels& pack = *s.pack;
    const char *const *key = rows.key, *const *key_scale = rows.key_scale;
    s.taken.take(pack.key_rows, spec.key_format, spec.D, rows, &key, &key_scale);
    if (pack.key_scales) pack.key_scales({key_scale, s.key_scales, rows.padded()});
    s.packed_keys = pack.keys ? static_cast<const void*>(packed_in_cache(plan, rows)) : key;
    jit::LinesAhead* const ahead = look_ahead_of_packing(plan, !s.packed_keys, s);
    if (!s.packed_keys) {
        pack.keys({key, s.key_scales, s.keys, rows.padded(), ahead});
        s.packed_keys = s.keys;
    }
    const char *const *value = rows.value, *const *value_scale = rows.value_scale;
    s.taken.take(pack.value_rows, spec.value_format, spec.Dv, rows, &value, &value_scale);
    if (pack.value_scales) pack.value_scales({value_scale, s.value_scales, rows.padded()});
    const bool pairs = pack.value_products != jit::Products::floats;
    s.packed = value;
    s.value_lists =
        pack.value_lists && !any_negative(s.value_scales, rows.padded() * plan.value_scale_stride);
    if (pack.values && !s.value_lists) {
        pack.values({value, s.value_scales, s.values, pairs ? rows.padded() : rows.count, ahead});
        s.packed = s.values;
    }
    if (pack.relate) pack.relate({s.value_scales, s.tops, rows.padded()});
    s.ahead->finish();
}

// Tiles end at fixed positions, as pages do: the first has less where the item begins between them.
int64_t tile_end(const AttentionPlan& plan, const Item& item, int64_t begin) {
    const int64_t first = item.key_begin / jit::kTileKeys * jit::kTileKeys, before = begin - first;
    return std::min(begin - before % plan.tile_keys + plan.tile_keys, item.key_end);
}

// The item's first tile from `begin` on of which some row sees a key; s.next gets its rows, or none.
int64_t find_tile(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, int64_t begin,
                  TileState& s) {
    const int group = plan.spec.group();
    const auto count = [&] { return tile_end(plan, item, begin) - begin; };
    while (begin < item.key_end &&
           !p.is_seen(item.b, item.row_begin / group, (item.row_end - 1) / group, begin, count()))
        begin += count();
    s.next->count = s.next_asked = s.num_next_queries = 0;
    if (begin < item.key_end) {
        s.next->set(p.cache, item.b, item.kv_head, begin, count(), 0);
        s.next->side_by_side = p.cache.side_by_side(begin, count());
    }
    return begin;
}

// What the next item begins with.
void find_following(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, TileState& s) {
    find_tile(plan, p, item, item.key_begin, s);
    s.num_next_queries = std::min<int64_t>(item.row_end - item.row_begin, plan.panel_rows());
    for (int64_t r = 0; r < s.num_next_queries; ++r)
        s.next_queries[r] = query_at(p, item, item.row_begin + r);
}

}  // namespace

size_t scratch_floats(const AttentionPlan& plan) {
    if (!plan.target->jit()) return 0;
    const size_t ks = size_t(plan.key_stride), vs = size_t(plan.value_stride);
    const size_t kss = size_t(plan.key_scale_stride), vss = size_t(plan.value_scale_stride);
    const size_t R = size_t(plan.decode_rows), lanes = size_t(plan.panel_rows()),
                 keys = size_t(plan.tile_keys);
    const size_t addresses = sizeof(RowAddresses) / 4 + 16;
    const size_t weights = size_t(plan.weight_stride + jit::weight_row_bytes(2 * plan.weight_stride) / 4);
    const size_t few = head_floats(plan) + R * (weights + 2 * jit::kBlock) +
                       (jit::kBlock + jit::kScalesAhead) * (kss + vss) + 2 * addresses +
                       sizeof(AskedHalves) / 4 + jit::kMostNumbers * size_t(plan.target->lanes()) +
                       jit::kBlock * size_t(copied_value_bytes(plan) / 4 + 2) + 1024;
    const size_t panel = lanes * (ks + vs + 10) + 128;
    const size_t tiles = keys * size_t(plan.tile_key_lanes) + jit::kPanelStride * (vs / jit::kValuePanel) +
                         keys * (kss + vss) + WeightFloats(plan).all() + 2 * keys * lanes +
                         column_floats(plan) + vs + 4 * jit::kTileKeys + 16 * lanes +
                         max_panels(plan) * (panel + sizeof(Panel) / 4) + 2 * addresses + sizeof(Ahead) / 4 +
                         taken_floats(plan) + 1024;
    return std::max(few, tiles);
}

void attend_tiles(const AttentionPlan& plan, const AttentionProblem& problem, const Item& item,
                  const Item* following, Scratch& scratch, States& states) {
    const int64_t rows = plan.first_rows(problem.queries(item.b) * plan.spec.group());
    TileState s = allocate(plan, plan.takes_few(rows), scratch);
    const WithAmxTiles tiles(s.few ? plan.few_panel.tiles : plan.panel.tiles);
    make_panels(plan, problem, item, scratch, &s, states);
    for (int64_t begin = find_tile(plan, problem, item, item.key_begin, s); begin < item.key_end;) {
        std::swap(s.addresses, s.next);
        const int64_t count = s.addresses->count;
        const int64_t next = find_tile(plan, problem, item, begin + count, s);
        if (next >= item.key_end && following) find_following(plan, problem, *following, s);
        pack_tile(plan, *s.addresses, s);
        for (int64_t i = 0; i < s.num_panels; ++i) {
            attend_panel(plan, problem, item, i, begin, count, s);
            if (begin + count >= s.panels[i].any.end && !s.panels[i].written)
                write_panel(plan, problem, item, s.panels[i], s, states);
        }
        begin = next;
    }
    for (int64_t i = 0; i < s.num_panels; ++i)
        if (!s.panels[i].written) write_panel(plan, problem, item, s.panels[i], s, states);
}

}  // namespace quire
