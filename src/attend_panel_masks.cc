// What hides keys from a panel's rows, or is added to their scores.
#include <algorithm>
#include <cmath>

#include "src/attend_panels.h"
#include "src/half.h"
#include "src/transpose.h"

namespace quire {
namespace {

// Of keys begin .. begin + count, [count][panel lanes]; lanes without a row get that of the last.
void load_bias_columns(const AttentionProblem& p, const Item& item, const Panel& panel, int64_t begin,
                       int64_t count, float* bias, const TileState& s) {
    const int group = p.spec->group();
    const bool by_head = p.has_terms_by_head();
    for (int64_t first = 0; first < panel.lanes; first += 4) {
        const UnalignedFloat* rows[4];
        int64_t before = -1;
        for (int64_t r = 0; r < 4; ++r) {
            const int64_t row = panel.row_begin + std::min(first + r, panel.rows - 1);
            if (before == row || (before >= 0 && !by_head && before / group == row / group)) {
                rows[r] = rows[r - 1];
            } else {
                float* to = s.bias_rows + r * jit::kTileKeys;
                load_bias(p, item, row, begin, count, to);
                rows[r] = to;
            }
            before = row;
        }
        rows_to_columns(rows, int(count), bias + first, panel.lanes);
    }
}

// As with a mask for all heads, four of which share a kv head.
bool are_alike_in_fours(const char* const* rows, int64_t lanes) {
    bool alike = true;
    for (int64_t r = 0; r < lanes; r += 4)
        for (int64_t i = 1; i < 4; ++i) alike = alike && rows[r + i] == rows[r];
    return alike;
}

}  // namespace

void set_bounds(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
                int64_t begin, int64_t count, const TileState& s) {
    const int64_t group = plan.spec.group();
    for_queries(panel, group, [&](int64_t query, int64_t head, int64_t row, int64_t end) {
        const KeyRange seen = p.visible_in(item.b, query, begin, count);  // all its heads
        // Lanes without a row have what the last one has.
        const int64_t lanes_end = end == panel.rows ? panel.lanes : end;
        for (int64_t r = row; r < lanes_end; ++r) {
            s.begin[r] = int32_t(seen.begin);
            s.end[r] = int32_t(seen.end);
        }
        for (int64_t r = row; plan.spec.alibi && r < lanes_end; ++r) {
            const int64_t of_group = head + std::min(r, panel.rows - 1) - row;
            s.slope[r] = plan.slopes[size_t(item.kv_head * group + of_group)] * jit::kLog2e;
            s.distance[r] = float(begin - p.position(item.b, query));
        }
    });
}

void list_mask(const AttentionProblem& p, const Item& item, Scratch& scratch, Panel* panel) {
    panel->mask = nullptr;
    if (p.num_terms != 1) return;
    const int group = p.spec->group();
    const ScoreTerm& term = p.terms[0];
    const char* of_query = numbers_of(p, term, item.b, panel->first_query, item.kv_head * group, 0);
    if (of_query == nullptr) return;
    const char** const rows = panel->mask = scratch.array<const char*>(size_t(panel->lanes));
    for_queries(*panel, group, [&](int64_t, int64_t head, int64_t row, int64_t end) {
        const char* at = of_query + head * term.head_stride;
        for (int64_t r = row; r < end; ++r, at += term.head_stride) rows[r] = at;
        of_query += term.row_stride;
    });
    std::fill(rows + panel->rows, rows + panel->lanes, rows[panel->rows - 1]);
    panel->mask_in_fours = are_alike_in_fours(rows, panel->lanes);
}

bool add_terms(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
               int64_t begin, int64_t count, const TileState& s) {
    const bool capped = plan.spec.soft_cap > 0;  // which comes before
    if (!panel.mask) {
        load_bias_columns(p, item, panel, begin, count, s.bias, s);
        return false;
    }
    float* const scores = capped ? s.bias : s.scores;
    if (capped) std::fill(s.bias, s.bias + count * panel.lanes, 0.f);
    const int lanes = plan.target->lanes();
    const int64_t done = count / jit::kBiasKeys * jit::kBiasKeys;
    std::copy_n(panel.max, panel.lanes, s.new_max);
    const quire_type type = p.terms[0].type;
    const int64_t before = bytes_of(type, begin);
    for (int64_t first = 0; done > 0 && first < panel.lanes; first += lanes)
        plan.mask_rows.of(type)({panel.mask + first, before, scores + first,
                                 panel.lanes * int64_t(sizeof(float)), done, panel.mask_in_fours,
                                 s.new_max + first});
    float *const rest = s.bias + done * panel.lanes, *const to = scores + done * panel.lanes;
    if (done < count) load_bias_columns(p, item, panel, begin + done, count - done, rest, s);
    for (int64_t i = 0; !capped && i < (count - done) * panel.lanes; ++i)
        to[i] = rest[i] == -INFINITY ? -INFINITY : to[i] + rest[i];
    return !capped;
}

void drop_panel(const AttentionProblem& p, const Item& item, const Panel& panel, int64_t begin, int64_t count,
                const TileState& s) {
    for (int64_t r = 0; r < panel.rows; ++r) {
        if (!s.pack->probability_pairs) {
            drop(p, item, panel.row_begin + r, begin, count, s.scores + r, panel.lanes);
            continue;
        }
        auto* const pairs = reinterpret_cast<uint16_t*>(s.scores);
        const auto at = [&](int64_t key) -> uint16_t& {
            return pairs[(key / 2 * panel.lanes + r) * 2 + key % 2];
        };
        float probabilities[jit::kTileKeys];
        for (int64_t key = 0; key < count; ++key) probabilities[key] = bfloat_to_float(at(key));
        drop(p, item, panel.row_begin + r, begin, count, probabilities, 1);
        for (int64_t key = 0; key < count; ++key) at(key) = float_to_bfloat(probabilities[key]);
    }
}

}  // namespace quire
