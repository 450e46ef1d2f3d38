#include "src/append.h"

#include <algorithm>

#include "src/append_rows.h"
#include "src/portable.h"

namespace quire {
namespace {

bool has_blocks(const AppendSpec& spec) {
    return token_block_info(spec.key_format.type) || token_block_info(spec.value_format.type);
}

int64_t tokens_of_item(const AppendPlan& plan) {
    const int64_t tokens = std::clamp<int64_t>(AppendRows::kMost / plan.spec.Hk, 1, AppendRows::kMost);
    return has_blocks(plan.spec) ? std::max<int64_t>(tokens, kBlockTokens) : tokens;
}

RowView at_row(const RowView& view, int64_t b, int64_t row) {
    return {view.at(b, row, 0), 0, view.head_stride, 0};
}

class Appender {
public:
    Appender(const AppendPlan& plan, const AppendProblem& problem, Scratch& scratch)
        : plan_(plan),
          problem_(problem),
          kernel_scratch_(scratch.floats(plan.kernel_floats)),
          keys_({plan.key, plan.key_place, plan.spec.key_format, Side::key, plan.spec.D}, kernel_scratch_,
                scratch),
          values_({plan.value, plan.value_place, plan.spec.value_format, Side::value, plan.spec.Dv},
                  kernel_scratch_, scratch) {}

    // New tokens of sequence b from `first` on, to the end of their block where there are blocks, but not to
    // `end`. Returns the token after them.
    int64_t add(int64_t b, int64_t first, int64_t end) {
        if (!plan_.target->jit()) {
            for (int h = 0; h < plan_.spec.Hk; ++h) portable::append_row(problem_, b, first, h);
            return first + 1;
        }
        const int number = int(row_of(b, first) % kBlockTokens);
        const int64_t count =
            has_blocks(plan_.spec) ? std::min<int64_t>(kBlockTokens - number, end - first) : 1;
        for (int i = 0; i < count; ++i) set(b, first + i, number + i, &key_tokens_[i], &value_tokens_[i]);
        keys_.add(key_tokens_, count, plan_.spec.Hk);
        if (plan_.value) values_.add(value_tokens_, count, plan_.spec.Hk);
        return first + count;
    }
    void flush() {
        keys_.flush();
        values_.flush();
    }

private:
    int64_t row_of(int64_t b, int64_t i) const {
        return problem_.cache.row(b, problem_.first_position(b) + i);
    }

    void set(int64_t b, int64_t i, int number, AppendRows::Token* key, AppendRows::Token* value) const {
        const AppendProblem& p = problem_;
        const int64_t from = p.row_of(b, i), row = row_of(b, i);
        *key = {at_row(p.new_key, b, from), at_row(p.cache.key, b, row), at_row(p.cache.key_scale, b, row),
                p.rotary ? p.rotary.row(p.position(b, i)) : Rotary::Row{}, number};
        if (!plan_.value) return;
        *value = {at_row(p.new_value, b, from), at_row(p.cache.value, b, row),
                  at_row(p.cache.value_scale, b, row), Rotary::Row{}, number};
    }

    const AppendPlan& plan_;
    const AppendProblem& problem_;
    float* const kernel_scratch_;
    AppendRows keys_, values_;
    AppendRows::Token key_tokens_[kBlockTokens], value_tokens_[kBlockTokens];  // of one block, or one
};

// The first token from `token` on that is not of a block which the token before it is of, too: two threads
// must not write to one block, where tokens share bytes.
int64_t whole_block(const AppendProblem& p, int64_t b, int64_t token) {
    const int64_t begin = p.queries_at.begin(b), end = p.queries_at.begin(b + 1);
    const int64_t before = (p.first_position(b) + token - begin) % kBlockTokens;  // tokens of the block
    return token == begin || before == 0 ? token : std::min(token + kBlockTokens - before, end);
}

}  // namespace

int64_t append_items(const AppendPlan& plan, const AppendProblem& problem) {
    const int64_t tokens = tokens_of_item(plan);
    return (problem.n + tokens - 1) / tokens;
}

size_t scratch_floats(const AppendPlan& plan) {
    const AppendSpec& spec = plan.spec;
    return AppendRows::floats(spec.key_format, spec.D) + AppendRows::floats(spec.value_format, spec.Dv) +
           plan.kernel_floats + 16;
}

void append_item(const AppendPlan& plan, const AppendProblem& p, int64_t item, Scratch& scratch) {
    const int64_t tokens = tokens_of_item(plan);
    int64_t first = item * tokens, end = std::min(first + tokens, p.n);
    const auto sequence_of = [&](int64_t token) {  // begin(b) <= token < begin(b + 1)
        int64_t b = 0, high = p.B;
        while (high - b > 1) {
            const int64_t middle = (b + high) / 2;
            (p.queries_at.begin(middle) <= token ? b : high) = middle;
        }
        return b;
    };
    if (has_blocks(plan.spec)) {
        first = whole_block(p, sequence_of(first), first);
        if (end < p.n) end = whole_block(p, sequence_of(end), end);
    }
    scratch.reset();
    Appender appender(plan, p, scratch);
    int64_t b = sequence_of(first);
    for (int64_t token = first; token < end;) {
        while (token >= p.queries_at.begin(b + 1)) ++b;
        const int64_t begin = p.queries_at.begin(b);
        token = begin + appender.add(b, token - begin, std::min(end, p.queries_at.begin(b + 1)) - begin);
    }
    appender.flush();
}

}  // namespace quire
