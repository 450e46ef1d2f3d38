#include "src/attend_panels.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// The query in the lanes, as jit::TileQkArgs says.
void load_query(const AttentionPlan& plan, const Panel& panel, const TileState& s) {
    const jit::PanelKernels& kernels = s.few ? plan.few_panel : plan.panel;
    const int lanes = plan.target->lanes();
    const int64_t stride = panel.lanes * int64_t(sizeof(float)), whole = lanes * int64_t(sizeof(float));
    for (int64_t first = 0; first < panel.lanes; first += lanes) {
        kernels.rows({panel.queries + first, kernels.query ? s.columns : panel.query + first,
                      kernels.query ? whole : stride, query_factor(plan.spec)});
        if (kernels.query) kernels.query({s.columns, panel.query + first, stride, panel.factors + first});
    }
}

size_t state_of(const Item& item, int64_t row) {
    return size_t(item.state + (row - item.row_begin) * item.parts);
}

void list_rows(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
               const TileState& s, States& states) {
    const int64_t group = plan.spec.group(), first_head = item.kv_head * group;
    for_queries(panel, group, [&](int64_t query, int64_t head, int64_t begin, int64_t end) {
        const int64_t row = p.row_of(item.b, query);
        const char* from = p.query.at(item.b, row, first_head + head);
        char* to = p.output.at(item.b, row, first_head + head);
        for (int64_t r = begin; r < end; ++r, from += p.query.head_stride, to += p.output.head_stride) {
            panel.queries[r] = from;
            panel.outputs[r] = to;
        }
    });
    for (int64_t r = 0; item.parts > 1 && r < panel.rows; ++r)
        panel.outputs[r] = reinterpret_cast<char*>(
            &states.output[state_of(item, panel.row_begin + r) * size_t(plan.value_stride)]);
    std::fill(panel.queries + panel.rows, panel.queries + panel.lanes, panel.queries[panel.rows - 1]);
    std::fill(panel.outputs + panel.rows, panel.outputs + panel.lanes, reinterpret_cast<char*>(s.spare_row));
}

void clear_sums(Panel& panel) {
    std::fill(panel.max, panel.max + panel.lanes, -INFINITY);
    std::fill(panel.sum, panel.sum + panel.lanes, 0.f);
    std::fill(panel.top, panel.top + panel.lanes, -INFINITY);
}

}  // namespace

void make_panels(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, Scratch& scratch,
                 TileState* s, States& states) {
    const int group = plan.spec.group(), lanes = plan.target->lanes();
    s->num_panels = 0;
    for (int64_t row = item.row_begin; row < item.row_end;) {
        Panel& panel = s->panels[s->num_panels++];
        const int64_t left = item.row_end - row;
        panel.row_begin = row;
        panel.rows = std::min<int64_t>(left, plan.panel_rows());
        panel.vecs = int((panel.rows + lanes - 1) / lanes);
        panel.lanes = panel.vecs * lanes;
        panel.query = scratch.floats(size_t(plan.spec.D * panel.lanes));
        panel.factors = scratch.floats(size_t(panel.lanes));
        panel.output = scratch.floats(size_t(plan.value_stride * panel.lanes));
        panel.max = scratch.floats(size_t(panel.lanes));
        panel.sum = scratch.floats(size_t(panel.lanes));
        panel.top = scratch.floats(size_t(panel.lanes));
        panel.queries = scratch.array<const char*>(size_t(panel.lanes));
        panel.outputs = scratch.array<char*>(size_t(panel.lanes));
        panel.wary = panel.begun = panel.asked = panel.written = false;
        panel.first_query = row / group;
        panel.last_query = (row + panel.rows - 1) / group;
        p.visible(item.b, panel.first_query, panel.last_query, &panel.any, &panel.all);
        list_rows(plan, p, item, panel, *s, states);
        list_mask(p, item, scratch, &panel);
        row += panel.rows;
    }
}

void begin_panel(const AttentionPlan& plan, Panel& panel, const TileState& s) {
    clear_sums(panel);
    load_query(plan, panel, s);
    panel.begun = true;
}

void write_panel(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, Panel& panel,
                 const TileState& s, States& states) {
    if (!panel.begun) {  // it sees no key
        clear_sums(panel);
        std::fill_n(panel.output, plan.value_stride * panel.lanes, 0.f);
    }
    panel.written = true;
    if (s.few) return write_rows(plan, p, item, panel.max, panel.sum, panel.output, states);
    const bool whole = item.parts == 1, by_sum = whole && !p.sinks && !p.lse.base;
    float* const factors = s.rescale;  // of no more use
    for (int64_t r = 0; r < panel.lanes; ++r) factors[r] = by_sum ? scale_of(panel.sum[r]) : 1;
    for (int64_t r = 0; !by_sum && r < panel.rows; ++r) {
        const int64_t row = panel.row_begin + r;
        if (whole) {
            factors[r] = finish_scale(p, item, row, panel.max[r], panel.sum[r]);
            continue;
        }
        states.max[state_of(item, row)] = panel.max[r];
        states.sum[state_of(item, row)] = panel.sum[r];
        float* const to = reinterpret_cast<float*>(panel.outputs[r]);
        std::fill(to + plan.spec.Dv, to + plan.value_stride, 0.f);
    }
    float* const poison = s.weight_factors;  // of no more use
    for (int64_t first = 0; first < panel.lanes; first += plan.target->lanes())
        (whole ? plan.panel.output
               : plan.panel.states)({panel.output + first, panel.lanes * int64_t(sizeof(float)),
                                     factors + first, panel.outputs + first, poison + first});
    for (int64_t r = 0; whole && r < panel.rows; ++r)
        if (std::isnan(poison[r])) finish_special(p, item, panel.row_begin + r);
}

}  // namespace quire
