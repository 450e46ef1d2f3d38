#include "src/append.h"

#include <algorithm>

#include "src/portable.h"

namespace quire {
namespace {

constexpr int64_t kRows = 64;  // most that a kernel is called with

int64_t tokens_of_item(const AppendPlan& plan) { return std::clamp<int64_t>(kRows / plan.spec.Hk, 1, kRows); }

// Rows of keys, or of values, that wait for their kernel.
class Rows {
public:
    Rows(const jit::Kernel<jit::AppendArgs>& kernel, float* kernel_scratch, Scratch& scratch)
        : kernel_(kernel),
          kernel_scratch_(kernel_scratch),
          rows_(scratch.array<jit::AppendRow>(size_t(kRows))) {}

    // All heads of one token.
    struct Token {
        RowView from, to, scales;  // row 0 is the token's
        int64_t heads;
        Rotary::Row angles;
    };
    void add(const Token& token) {
        char *from = token.from.base, *to = token.to.base, *scales = token.scales.base;
        for (int64_t h = 0; h < token.heads; ++h) {
            if (count_ == kRows) flush();
            rows_[count_++] = {from, to, scales, token.angles.cos, token.angles.sin};
            from += token.from.head_stride;
            to += token.to.head_stride;
            scales += token.scales.head_stride;
        }
    }
    void flush() {
        if (count_ > 0) kernel_({rows_, count_, kernel_scratch_});
        count_ = 0;
    }

private:
    const jit::Kernel<jit::AppendArgs>& kernel_;
    float* const kernel_scratch_;
    jit::AppendRow* const rows_;
    int64_t count_ = 0;
};

RowView at_row(const RowView& view, int64_t b, int64_t row) {
    return {view.at(b, row, 0), 0, view.head_stride, 0};
}

class Appender {
public:
    Appender(const AppendPlan& plan, const AppendProblem& problem, Scratch& scratch)
        : plan_(plan),
          problem_(problem),
          kernel_scratch_(scratch.floats(plan.kernel_floats)),
          keys_(plan.key, kernel_scratch_, scratch),
          values_(plan.value, kernel_scratch_, scratch) {}

    // New token i of sequence b.
    void add(int64_t b, int64_t i) {
        const AppendProblem& p = problem_;
        if (!plan_.target->jit()) {
            for (int h = 0; h < plan_.spec.Hk; ++h) portable::append_row(p, b, i, h);
            return;
        }
        const int64_t from = p.row_of(b, i), row = p.cache.row(b, p.first_position(b) + i),
                      heads = plan_.spec.Hk;
        keys_.add({at_row(p.new_key, b, from), at_row(p.cache.key, b, row), at_row(p.cache.key_scale, b, row),
                   heads, p.rotary ? p.rotary.row(p.position(b, i)) : Rotary::Row{}});
        if (!plan_.value) return;
        values_.add({at_row(p.new_value, b, from),
                     at_row(p.cache.value, b, row),
                     at_row(p.cache.value_scale, b, row),
                     heads,
                     {}});
    }
    void flush() {
        keys_.flush();
        values_.flush();
    }

private:
    const AppendPlan& plan_;
    const AppendProblem& problem_;
    float* const kernel_scratch_;
    Rows keys_, values_;
};

}  // namespace

int64_t append_items(const AppendPlan& plan, const AppendProblem& problem) {
    const int64_t tokens = tokens_of_item(plan);
    return (problem.n + tokens - 1) / tokens;
}

size_t scratch_floats(const AppendPlan& plan) {
    return 2 * kRows * sizeof(jit::AppendRow) / sizeof(float) + plan.kernel_floats + 64;
}

void append_item(const AppendPlan& plan, const AppendProblem& p, int64_t item, Scratch& scratch) {
    const int64_t tokens = tokens_of_item(plan), first = item * tokens, end = std::min(first + tokens, p.n);
    int64_t b = 0, high = p.B;  // the sequence: begin(b) <= first < begin(b + 1)
    while (high - b > 1) {
        const int64_t middle = (b + high) / 2;
        (p.queries_at.begin(middle) <= first ? b : high) = middle;
    }
    scratch.reset();
    Appender appender(plan, p, scratch);
    for (int64_t token = first; token < end; ++token) {
        while (token >= p.queries_at.begin(b + 1)) ++b;
        appender.add(b, token - p.queries_at.begin(b));
    }
    appender.flush();
}

}  // namespace quire
