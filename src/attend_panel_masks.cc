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

// What a panel's queries see of keys begin .. begin + count, one after the other.
class SeenByQuery {
public:
    SeenByQuery(const AttentionProblem& p, const Item& item, const Panel& panel, int64_t begin, int64_t count)
        : problem_(p),
          panel_(panel),
          b_(item.b),
          begin_(begin),
          count_(count),
          begins_(step(panel.any.begin, panel.all.begin)),
          ends_(step(panel.all.end, panel.any.end)),
          is_steady_(!p.mask_map && begins_ >= 0 && ends_ >= 0) {}

    KeyRange of(int64_t query) const {
        if (!is_steady_) return problem_.visible_in(b_, query, begin_, count_);
        const int64_t i = query - panel_.first_query;
        return {std::clamp<int64_t>(panel_.any.begin + i * begins_ - begin_, 0, count_),
                std::clamp<int64_t>(panel_.all.end + i * ends_ - begin_, 0, count_)};
    }

private:
    // Without a map a bound rises by 0 or 1 from each query to the next: always by 0, always by 1, or now and
    // then (-1).
    int64_t step(int64_t first, int64_t last) const {
        return first == last ? 0 : last - first == panel_.last_query - panel_.first_query ? 1 : -1;
    }

    const AttentionProblem& problem_;
    const Panel& panel_;
    const int64_t b_, begin_, count_, begins_, ends_;
    const bool is_steady_;
};

}  // namespace

void set_bounds(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
                int64_t begin, int64_t count, const TileState& s) {
    const int64_t group = plan.spec.group();
    const SeenByQuery seen_by(p, item, panel, begin, count);
    int64_t r = 0, head = panel.row_begin - panel.first_query * group;
    for (int64_t i = panel.first_query; i <= panel.last_query; ++i, head = 0) {
        const KeyRange seen = seen_by.of(i);  // of all its heads
        // Lanes without a row have what the last one has.
        const int64_t end = i < panel.last_query ? r + group - head : panel.lanes;
        for (int64_t lane = r; lane < end; ++lane) {
            s.begin[lane] = int32_t(seen.begin);
            s.end[lane] = int32_t(seen.end);
        }
        for (; plan.spec.alibi && r < end; ++r) {
            s.slope[r] = plan.slopes[size_t(item.kv_head * group + head)] * jit::kLog2e;
            s.distance[r] = float(begin - p.position(item.b, i));
            if (r + 1 < panel.rows) ++head;
        }
        r = end;
    }
}

bool list_mask_rows(const AttentionProblem& p, const Item& item, const Panel& panel, int64_t begin,
                    const char** rows) {
    if (p.num_terms != 1) return false;
    const int group = p.spec->group();
    int64_t r = 0, head = panel.row_begin - panel.first_query * group;
    for (int64_t i = panel.first_query; i <= panel.last_query; ++i, head = 0) {
        const char* of_row = numbers_of(p, p.terms[0], item.b, i, item.kv_head * group + int(head), begin);
        if (of_row == nullptr) return false;
        for (; head < group && r < panel.rows; ++head, ++r, of_row += p.terms[0].head_stride)
            rows[r] = of_row;
    }
    std::fill(rows + panel.rows, rows + panel.lanes, rows[panel.rows - 1]);
    return true;
}

bool add_terms(const AttentionPlan& plan, const AttentionProblem& p, const Item& item, const Panel& panel,
               int64_t begin, int64_t count, const TileState& s) {
    const bool capped = plan.spec.soft_cap > 0;  // which comes before
    if (!list_mask_rows(p, item, panel, begin, s.mask_rows)) {
        load_bias_columns(p, item, panel, begin, count, s.bias, s);
        return false;
    }
    float* const scores = capped ? s.bias : s.scores;
    if (capped) std::fill(s.bias, s.bias + count * panel.lanes, 0.f);
    const int lanes = plan.target->lanes();
    const int64_t done = count / 4 * 4;
    const bool fours = are_alike_in_fours(s.mask_rows, panel.lanes);
    for (int64_t first = 0; done > 0 && first < panel.lanes; first += lanes)
        plan.mask_rows.of(p.terms[0].type)(
            {s.mask_rows + first, scores + first, panel.lanes * int64_t(sizeof(float)), done, fours});
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
