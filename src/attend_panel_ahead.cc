// What a tile's kernels ask for in memory while they compute (jit/lines_ahead.h).
#include <algorithm>

#include "jit/pack.h"
#include "src/attend_panels.h"

namespace quire {
namespace {

// The next tile's rows up to this one, for kernels to ask for.
void add_next_rows(const AttentionPlan& plan, int64_t end, TileState& s) {
    const AttentionSpec& spec = plan.spec;
    const int64_t first = s.next_asked, rows = end - first;
    s.next_asked = end;
    if (rows == 0) return;
    // What one panel of one vector works on fills 32 KB; at `medium` it is done with as soon as memory is.
    const bool beyond_first = s.num_panels == 1 && s.panels[0].vecs == 1 && !has_large_l1() &&
                              spec.precision == QUIRE_PRECISION_MEDIUM;
    const uintptr_t use = beyond_first ? jit::kSecondLevel : 0;
    const auto add_rows = [&](const char* const* list, int64_t bytes) {
        s.next->side_by_side ? s.ahead->add_adjacent(list[first], rows, bytes, use)
                             : s.ahead->add(list + first, rows, bytes, use);
    };
    const auto add_blocks = [&](const char* const* list, int64_t bytes) {
        for (int64_t i = (first + kBlockTokens - 1) / kBlockTokens * kBlockTokens; i < first + rows;
             i += kBlockTokens)
            s.ahead->add(list + i, 1, bytes, use);
    };
    const auto add = [&](const char* const* list, const char* const* scales, const quire_format& format,
                         int dim) {
        if (token_block_info(format.type)) return add_blocks(list, block_bytes(format, dim));
        add_rows(list, bytes_of(format.type, dim));
        if (is_quantised(format)) add_rows(scales, bytes_of(format.scale_type, dim / format.quant_group));
    };
    add(s.next->key, s.next->key_scale, spec.key_format, spec.D);
    if (!are_views(spec, *s.next)) add(s.next->value, s.next->value_scale, spec.value_format, spec.Dv);
}

// As many lines as its kernels ask for, and no more than a panel's share: it takes as long as one.
int64_t rows_asked_by_packing(const AttentionPlan& plan, bool packs_keys, const TileState& s) {
    if (!s.pack->asks_ahead) return 0;
    const auto bytes = [](const quire_format& of, int dim) {
        const quire_format format = row_format(of);
        return bytes_of(format.type, dim) +
               (is_quantised(format) ? bytes_of(format.scale_type, dim / format.quant_group) : 0);
    };
    const AttentionSpec& spec = plan.spec;
    const int64_t lines = jit::kLinesOfPackedRow * (packs_keys ? 2 : 1),
                  row = bytes(spec.key_format, spec.D) + bytes(spec.value_format, spec.Dv);
    return std::min<int64_t>(s.next->count * lines * jit::kLineBytes / row,
                             s.next->count / (s.num_panels == 1 ? 1 : s.num_panels + 1));
}

}  // namespace

jit::LinesAhead* look_ahead_of_packing(const AttentionPlan& plan, bool packs_keys, TileState& s) {
    s.ahead->clear();
    s.asked_by_packing = rows_asked_by_packing(plan, packs_keys, s);
    add_next_rows(plan, s.asked_by_packing, s);
    return s.ahead->begin();
}

void look_ahead(const AttentionPlan& plan, int64_t index, bool ends_soon, TileState& s) {
    const AttentionSpec& spec = plan.spec;
    Panel& panel = s.panels[index];
    const bool is_last = index + 1 == s.num_panels;
    if (ends_soon && !panel.asked) {
        s.ahead->add(panel.outputs, panel.rows, bytes_of(spec.type, spec.Dv), jit::kWritten);
        panel.asked = true;
    }
    if (is_last) {
        s.ahead->add(s.next_queries, s.num_next_queries, bytes_of(spec.type, spec.D));
    } else if (const Panel& next = s.panels[index + 1]; !next.begun) {
        s.ahead->add(next.queries, next.rows, bytes_of(spec.type, spec.D));
    }
    const int64_t left = s.next->count - s.asked_by_packing;
    add_next_rows(plan, s.asked_by_packing + left * (index + 1) / s.num_panels, s);
}

void look_ahead_at_mask(const AttentionProblem& p, int64_t index, int64_t begin, int64_t tile_count,
                        TileState& s) {
    const auto add = [&](const Panel& panel, int64_t first, int64_t in_tile) {
        if (!panel.sees(first, in_tile)) return false;
        const quire_type type = p.terms[0].type;
        const int64_t count = std::min(in_tile, panel.any.end - first);
        s.ahead->add_apart(panel.mask, panel.rows, bytes_of(type, first), bytes_of(type, count));
        return true;
    };
    if (s.mask_asked != &s.panels[index]) add(s.panels[index], begin, tile_count);
    s.ahead->mark();
    s.mask_asked = nullptr;
    if (!s.asks_early) return;
    for (int64_t i = index + 1; i < s.num_panels && !s.mask_asked; ++i)
        if (add(s.panels[i], begin, tile_count)) s.mask_asked = &s.panels[i];
    if (s.next->count == 0 || s.num_next_queries > 0) return;  // no tile of this item
    for (int64_t i = 0; i < s.num_panels && !s.mask_asked; ++i)
        if (add(s.panels[i], s.next->begin, s.next->count)) s.mask_asked = &s.panels[i];
}

}  // namespace quire
