#include "src/attend_asks.h"

#include <algorithm>

#include "src/attend_query_rows.h"

namespace quire {
namespace {

constexpr int kBlock = jit::kBlock;
constexpr int64_t kLine = jit::kLineBytes, kPage = 4096;

// GCC leaves out calls of functions that do nothing but __builtin_prefetch, as if they did nothing.
void prefetch(const void* at, bool near) {
    if (near)
        asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(at)));
    else
        asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(at)));
}
// The line at `at` is going to be written.
void prefetch_to_write(const void* at) {
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
}

// The first-level cache takes the next rows where it is large and they lie side by side, as those of a block
// of tokens do: with others between them they share few of its sets. Not on Intel's cores (jit/prefetch.h).
AskedRows asked_rows(const Target& target, const quire_format& format, int dim, int64_t stride) {
    const bool blocks = token_block_info(format.type) != nullptr;
    const int64_t bytes = blocks ? block_bytes(format, dim) : bytes_of(format.type, dim);
    return {has_large_l1() && !target.of_intel() && (blocks || stride == bytes), bytes,
            (bytes + kLine - 1) / kLine, blocks ? kBlockTokens : 1};
}

// Whether kBlock tokens are in blocks that follow each other.
bool together(const AskedRows& asked, const RowAddresses& of, const char* const* blocks) {
    if (asked.step == 1 || of.count != kBlock) return false;
    for (int64_t i = kBlockTokens; i < kBlock; i += kBlockTokens)
        if (blocks[i] != blocks[i - kBlockTokens] + asked.bytes) return false;
    return true;
}
jit::NextRows next_keys(const RowAddresses& of, const Asks& asks) {
    return {of.key, of.key_scale, asks.keys.near, asks.of_places && together(asks.keys, of, of.key)};
}
jit::NextRows next_values(const RowAddresses& of, const Asks& asks) {
    return {of.value, of.value_scale, asks.values.near,
            asks.of_places && together(asks.values, of, of.value)};
}

// Where values are views of keys, PV would ask again for what QK has asked for. So QK by tiles of AMX, which
// wait for memory most, asks for half of the rows, each of them twice, and PV for the others, or for as much
// of them as values have.
void split_next(const AttentionPlan& plan, const RowAddresses& next, AskedHalves* halves) {
    for (int64_t i = 0; i < 2 * kBlock; ++i) {
        const int64_t row = i * next.count / (2 * kBlock);
        halves->rows[i / kBlock][i % kBlock] = next.key[row];
        if (is_quantised(plan.spec.key_format)) halves->scales[i / kBlock][i % kBlock] = next.key_scale[row];
    }
}

// On Intel's cores rows of a list, of which kernels ask for a few at a time, are asked for at several places
// of it in turns, as others are (jit/prefetch.h): those of small pages, and rows of two lines and more that
// are no further apart than a page of memory.
bool asks_in_turns(const CacheView& cache, const Asks& asks, const RowAddresses& block,
                   const RowAddresses& next) {
    if (block.side_by_side || next.side_by_side || asks.keys.step != 1 || asks.values.step != 1) return false;
    if (block.count != kBlock || next.count != kBlock) return false;
    return cache.adjacent || (std::max(cache.key.row_stride, cache.value.row_stride) <= kPage &&
                              std::min(asks.keys.lines, asks.values.lines) > 1);
}
const char* const* spread(const char* const* rows, const char** to) {
    constexpr int kPlaces = 4, kOfPlace = kBlock / kPlaces;
    for (int i = 0; i < kOfPlace; ++i)
        for (int place = 0; place < kPlaces; ++place) to[kPlaces * i + place] = rows[kOfPlace * place + i];
    return to;
}

// On AMD's cores a line of each page ahead is a gain where little is done with what is read: with up to
// kRowsByPage query rows, and not of blocks of tokens. On Intel's cores it is one of all that kernels ask for
// at several places.
bool asks_by_page(jit::Placement placement, const RowAddresses& next, const Asks& asks, int64_t rows) {
    constexpr int64_t kRowsByPage = 2;
    if (!asks.of_places)
        return rows <= kRowsByPage && next.side_by_side && placement == jit::Placement::adjacent;
    if (asks.keys.step > 1 && asks.values.step > 1) return true;
    return next.side_by_side && placement != jit::Placement::listed;
}

// A line of each page of rows side by side, a kernel before all their lines are asked for: by then the walk
// for the page's address is done.
void prefetch_pages(const AskedRows& asked, const RowAddresses& of, const char* const* rows,
                    jit::Placement placement) {
    if (placement == jit::Placement::runs || asked.step > 1) {
        uintptr_t last = 0;
        for (int64_t i = 0; i < of.count; i += jit::kKeyPadding) {
            const uintptr_t at = uintptr_t(rows[i]);
            if (last != 0 && at - last < kPage) continue;
            prefetch(rows[i], false);
            last = at;
        }
        return;
    }
    for (int64_t i = 0; i < of.count * asked.bytes; i += kPage) prefetch(rows[0] + i, false);
}

}  // namespace

// QK and PV ask for the rows that are read after the keys of a block, and after its values. A step ahead they
// compete for the cache with half as many as a block ahead. But each kernel can only ask for rows like its
// own: where keys and values differ, for those of the next block.
void set_asked_rows(const AttentionPlan& plan, const AttentionProblem& p, Asks* asks) {
    const AttentionSpec& spec = plan.spec;
    asks->keys = asked_rows(*plan.target, spec.key_format, spec.D, p.cache.key.row_stride);
    asks->values = asked_rows(*plan.target, spec.value_format, spec.Dv, p.cache.value.row_stride);
    asks->of_places = plan.target->of_intel();
    asks->same_rows = spec.key_format == spec.value_format && spec.D == spec.Dv;
}

BlockAsks::BlockAsks(const AttentionPlan& plan, const AttentionProblem& p, const Asks& asks,
                     const jit::DecodeKernels& kernels, const RowAddresses& block, const RowAddresses& next,
                     int64_t rows)
    : asks_(asks),
      block_(block),
      next_(next),
      placement_(kernels.placement),
      by_page_(asks_by_page(kernels.placement, next, asks, rows)),
      of_qk_(asks.same_rows ? next_values(block, asks) : next_keys(next, asks)),
      of_pv_(asks.same_rows ? next_keys(next, asks) : next_values(next, asks)) {
    AskedHalves* const halves = asks.halves;
    if (kernels.tiles.begin && are_views(plan.spec, next) && !next.side_by_side) {
        split_next(plan, next, halves);
        of_qk_ = {halves->rows[0], halves->scales[0], asks.keys.near};
        of_pv_ = {halves->rows[1], halves->scales[1], asks.keys.near};
    } else if (asks.of_places && asks_in_turns(p.cache, asks, block, next)) {
        of_qk_.rows = spread(of_qk_.rows, halves->rows[0]);
        of_pv_.rows = spread(of_pv_.rows, halves->rows[1]);
    }
}

void BlockAsks::before_qk() const {
    if (by_page_) prefetch_pages(asks_.keys, next_, next_.key, placement_);
}

// QK asks for lines all through, softmax and weights for none: the first of what PV will ask for keep the
// memory busy meanwhile, and are enough for the processor's own prefetches to go on from there.
void BlockAsks::before_softmax() const {
    constexpr int kLines = 12;
    const AskedRows& asked = asks_.same_rows ? asks_.keys : asks_.values;
    const char* const* const rows = of_pv_.rows;
    for (int64_t i = 0, row = 0, line = 0; i < kLines; ++i) {
        prefetch(block_.side_by_side ? rows[0] + i * kLine : rows[row] + line * kLine, of_pv_.near);
        if (++line == asked.lines) line = 0, row += asked.step;
    }
}

void BlockAsks::before_pv() const {
    if (by_page_) prefetch_pages(asks_.values, next_, next_.value, placement_);
}

// The lines that write_rows fills: a call's states do not stay in the caches.
void prefetch_states(const AttentionPlan& plan, const Item& item, const States& states) {
    constexpr int kFloats = 16;  // of a line
    for (int64_t r = 0; r < item.row_end - item.row_begin; ++r) {
        const float* output =
            states.output.data() + size_t(item.state + r * item.parts) * size_t(plan.value_stride);
        for (int i = 0; i < plan.value_stride; i += kFloats) prefetch_to_write(output + i);
        prefetch_to_write(output + plan.value_stride - 1);
    }
}

// The lines that finish_row fills, most likely soon: they belong to the caller.
void prefetch_outputs(const AttentionPlan& plan, const AttentionProblem& p, const Item& item) {
    const int64_t bytes = bytes_of(plan.spec.type, plan.spec.Dv);
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const char* const at = output_at(p, item, row);
        for (int64_t i = 0; i < bytes; i += kLine) prefetch_to_write(at + i);
    }
}

// The query rows of an item for which they are to be made: they have not been read yet.
void prefetch_queries(const AttentionPlan& plan, const AttentionProblem& p, const Item& item) {
    const int64_t bytes = bytes_of(plan.spec.type, plan.spec.D);
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const char* const at = query_at(p, item, row);
        for (int64_t i = 0; i < bytes; i += kLine) prefetch(at + i, false);
    }
}

}  // namespace quire
