#include "src/append.h"

#include <algorithm>

#include "src/portable.h"

namespace quire {
namespace {

constexpr int64_t kRows = 64;  // most that a kernel is called with

bool has_blocks(const AppendSpec& spec) {
    return token_block_info(spec.key_format.type) || token_block_info(spec.value_format.type);
}

int64_t tokens_of_item(const AppendPlan& plan) {
    const int64_t tokens = std::clamp<int64_t>(kRows / plan.spec.Hk, 1, kRows);
    return has_blocks(plan.spec) ? std::max<int64_t>(tokens, kBlockTokens) : tokens;
}

// Bytes of a plain row of a side in blocks of tokens, with its scales; 0: no blocks.
size_t row_bytes(const quire_format& format, int dim) {
    const TokenBlockInfo* info = token_block_info(format.type);
    return info && dim > 0 ? size_t(info->row_bytes(dim) + 2 * (dim / format.quant_group)) : 0;
}
size_t row_floats(const quire_format& format, int dim) { return kRows * row_bytes(format, dim) / 4 + 1; }

// Rows of keys, or of values, that wait for their kernel. What goes to blocks of tokens is quantised as a
// plain row first.
class Rows {
public:
    struct To {
        const quire_format& format;
        Side side;
        int dim;
    };
    Rows(const jit::Kernel<jit::AppendArgs>& kernel, const To& to, float* kernel_scratch, Scratch& scratch)
        : kernel_(kernel),
          kernel_scratch_(kernel_scratch),
          rows_(scratch.array<jit::AppendRow>(size_t(kRows))),
          info_(token_block_info(to.format.type)),
          shape_{to.side, to.dim, to.format.quant_group},
          row_bytes_(row_bytes(to.format, to.dim)),
          plain_(scratch.array<char>(4 * row_floats(to.format, to.dim))),
          places_(scratch.array<TokenPlace>(size_t(kRows))) {}

    // All heads of one token.
    struct Token {
        RowView from, to, scales;  // row 0 is the token's
        int64_t heads;
        Rotary::Row angles;
        int number;  // in its block
    };
    void add(const Token& token) {
        char *from = token.from.base, *to = token.to.base, *scales = token.scales.base;
        for (int64_t h = 0; h < token.heads; ++h) {
            if (count_ == kRows) flush();
            jit::AppendRow& row = rows_[count_];
            row = {from, to, scales, token.angles.cos, token.angles.sin};
            if (info_) {
                places_[count_] = {to, nullptr, token.number};
                row.row = plain_ + size_t(count_) * row_bytes_;
                row.scales = row.row + info_->row_bytes(shape_.dim);
            }
            ++count_;
            from += token.from.head_stride;
            to += token.to.head_stride;
            scales += token.scales.head_stride;
        }
    }
    void flush() {
        if (count_ > 0) kernel_({rows_, count_, kernel_scratch_});
        for (int64_t i = 0; info_ && i < count_; ++i)
            place_row(*info_, shape_, rows_[i].row, rows_[i].scales, places_[i].row, places_[i].token);
        count_ = 0;
    }

private:
    const jit::Kernel<jit::AppendArgs>& kernel_;
    float* const kernel_scratch_;
    jit::AppendRow* const rows_;
    const TokenBlockInfo* const info_;  // null: the cache has rows
    const TokenBlockShape shape_;
    const size_t row_bytes_;
    char* const plain_;         // [kRows] rows with their scales
    TokenPlace* const places_;  // [kRows] where they go
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
          keys_(plan.key, {plan.spec.key_format, Side::key, plan.spec.D}, kernel_scratch_, scratch),
          values_(plan.value, {plan.spec.value_format, Side::value, plan.spec.Dv}, kernel_scratch_, scratch) {
    }

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
                   heads, p.rotary ? p.rotary.row(p.position(b, i)) : Rotary::Row{},
                   int(row % kBlockTokens)});
        if (!plan_.value) return;
        values_.add({at_row(p.new_value, b, from),
                     at_row(p.cache.value, b, row),
                     at_row(p.cache.value_scale, b, row),
                     heads,
                     {},
                     int(row % kBlockTokens)});
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
    return 2 * kRows * (sizeof(jit::AppendRow) + sizeof(TokenPlace)) / sizeof(float) +
           row_floats(spec.key_format, spec.D) + row_floats(spec.value_format, spec.Dv) + plan.kernel_floats +
           160;
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
    for (int64_t token = first; token < end; ++token) {
        while (token >= p.queries_at.begin(b + 1)) ++b;
        appender.add(b, token - p.queries_at.begin(b));
    }
    appender.flush();
}

}  // namespace quire
