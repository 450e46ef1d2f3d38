#include "src/append_rows.h"

namespace quire {
namespace {

size_t plain_row_bytes(const quire_format& format, int dim) {
    const TokenBlockInfo* info = token_block_info(format.type);
    return info && dim > 0 ? size_t(info->placed_row_bytes(dim, format.quant_group)) : 0;
}

size_t plain_floats(const quire_format& format, int dim) {
    return size_t(AppendRows::kMost) * plain_row_bytes(format, dim) / 4 + 1;
}

}  // namespace

size_t AppendRows::floats(const quire_format& format, int dim) {
    constexpr size_t kAlignment = 48;  // of three arrays
    return kMost * (sizeof(jit::AppendRow) + sizeof(TokenPlace)) / sizeof(float) + plain_floats(format, dim) +
           kAlignment;
}

AppendRows::AppendRows(const To& to, float* kernel_scratch, Scratch& scratch)
    : to_(to),
      kernel_scratch_(kernel_scratch),
      info_(token_block_info(to.format.type)),
      shape_{to.side, to.dim, to.format.quant_group},
      row_bytes_(plain_row_bytes(to.format, to.dim)),
      rows_(scratch.array<jit::AppendRow>(size_t(kMost))),
      plain_(scratch.array<char>(4 * plain_floats(to.format, to.dim))),
      places_(scratch.array<TokenPlace>(size_t(kMost))) {}

// Rows of a head lie together, so that those of a block are placed together.
void AppendRows::add(const Token* tokens, int64_t count, int64_t heads) {
    for (int64_t h = 0; h < heads; ++h) {
        if (count_ + count > kMost) flush();
        for (int64_t i = 0; i < count; ++i) add(tokens[i], h);
    }
}

void AppendRows::add(const Token& token, int64_t head) {
    jit::AppendRow& row = rows_[count_];
    row = {token.from.at(0, head), token.to.at(0, head), token.scales.at(0, head), token.angles.cos,
           token.angles.sin};
    if (info_) {
        places_[count_] = {row.row, nullptr, token.number};
        row.row = plain_ + size_t(count_) * row_bytes_;
        row.scales = row.row + info_->row_bytes(shape_.dim);
    }
    ++count_;
}

void AppendRows::flush() {
    if (count_ > 0) to_.store({rows_, count_, kernel_scratch_});
    for (int64_t i = 0, run; info_ && i < count_; i += run) {
        run = run_from(i);
        place(i, run);
    }
    count_ = 0;
}

// Rows from `first` on that are of one block, one token after the other.
int64_t AppendRows::run_from(int64_t first) const {
    int64_t run = 1;
    while (first + run < count_ && places_[first + run].row == places_[first].row &&
           places_[first + run].token == places_[first].token + run)
        ++run;
    return run;
}

void AppendRows::place(int64_t first, int64_t count) {
    const int64_t together = info_->placed_together(shape_.side), end = first + count;
    for (; first < end && places_[first].token % together != 0; ++first) place_one(first);
    const int64_t turns = (end - first) / together;
    if (turns > 0) {
        const TokenPlace& at = places_[first];
        char* const block = static_cast<char*>(at.row);
        to_.place({rows_[first].row, block + info_->codes_at(shape_.side, shape_.dim, at.token), turns});
        for (const int64_t placed = first + turns * together; first < placed; ++first)
            place_scales(*info_, shape_, rows_[first].scales, block, places_[first].token);
    }
    for (; first < end; ++first) place_one(first);
}

void AppendRows::place_one(int64_t i) {
    place_row(*info_, shape_, rows_[i].row, rows_[i].scales, places_[i].row, places_[i].token);
}

}  // namespace quire
