#include "tests/support/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quire::test {
namespace {

constexpr uint8_t kSentinel = 0xcd;

// Which bytes of the view's buffer belong to no element.
std::vector<uint8_t> gaps_of(const GuardedBuffer& buffer, const quire_tensor& view) {
    std::vector<uint8_t> gaps(buffer.size(), 1);
    const int64_t bytes = type_bits(view.type) / 8 * (view.rank == 3 ? view.shape[2] : 1);
    for (int64_t i = 0; i < view.shape[0]; ++i)
        for (int64_t j = 0; j < view.shape[1]; ++j) {
            const auto begin = gaps.begin() + (element(view, i, j) - buffer.as<char>());
            std::fill(begin, begin + bytes, uint8_t(0));
        }
    return gaps;
}

bool holds_sentinel(const GuardedBuffer& buffer, const std::vector<uint8_t>& where) {
    for (size_t i = 0; i < where.size(); ++i)
        if (where[i] && buffer.as<uint8_t>()[i] != kSentinel) return false;
    return true;
}

// Strides of one layer's keys or values in a PMX cache_layout of two layers, or of whole pages of so many
// rows.
void set_layout(const Case& c, int64_t page, quire_tensor* view) {
    const int64_t slots = view->shape[0], heads = view->shape[1], dim = view->shape[2];
    const int64_t token[] = {4 * heads * dim, 2 * heads * dim, heads * dim, dim, dim};
    view->strides[0] = token[c.layout];
    view->strides[1] = c.has_whole_pages() ? page * dim : c.layout >= 3 ? slots * dim : dim;
}

// Of a dimension of length 1 the stride does not count.
void ignore_single(quire_tensor* view) {
    for (int d : {0, 1})
        if (view->shape[d] == 1) view->strides[d] = int64_t(1) << 40;
}

}  // namespace

void fill_dead(bool clean, GuardedBuffer* buffer, quire_type type) {
    if (clean) return buffer->fill(0);
    const uint32_t f32[] = {0x7fc00001, 0x7f800000, 0xffc00000, 0xff800000};
    const uint16_t f16[] = {0x7e01, 0x7c00, 0xfe00, 0xfc00}, bf16[] = {0x7fc1, 0x7f80, 0xffc0, 0xff80};
    if (block_info(type) || token_block_info(type))
        return buffer->fill(f16, sizeof f16);  // every scale and minimum
    const uint8_t codes[] = {0x80, 0x88, 0x7f, 0x08, 0x9b};
    switch (type) {
        case QUIRE_F32: return buffer->fill(f32, sizeof f32);
        case QUIRE_F16: return buffer->fill(f16, sizeof f16);
        case QUIRE_BF16: return buffer->fill(bf16, sizeof bf16);
        default: return buffer->fill(codes, sizeof codes);
    }
}

char* element(const quire_tensor& view, int64_t i, int64_t j, int64_t k) {
    int64_t at = 0;
    const int64_t index[] = {i, j, k};
    for (int d = 0; d < view.rank; ++d) at += view.shape[d] > 1 ? index[d] * view.strides[d] : 0;
    return static_cast<char*>(view.data) + bytes_of(view.type, at);
}

size_t extent(const quire_tensor& view) {
    int64_t last = 0;
    for (int d = 0; d < view.rank; ++d) {
        if (view.shape[d] == 0) return 0;
        last += view.shape[d] > 1 ? (view.shape[d] - 1) * view.strides[d] : 0;
    }
    const int whole = type_size(view.type).elements;
    return size_t(bytes_of(view.type, (last + whole) / whole * whole));
}

// ---- CacheSide ----

TokenPlace CacheSide::at(int64_t slot, int head) const {
    const int step = tokens_of_block(format);
    return {element(rows_view, slot / step, head),
            is_quantised(format) ? element(scales_view, slot, head) : nullptr, int(slot % step)};
}

void CacheSide::store(int64_t slot, int head, const std::vector<float>& values) {
    encode_token(format, side, dim, QUIRE_F32, values.data(), at(slot, head));
}

void CacheSide::load(int64_t slot, int head, float* values) const {
    decode_token(format, side, dim, at(slot, head), values);
}

void CacheSide::poison(int64_t slot, int head, float number) {
    const TokenPlace place = at(slot, head);
    if (is_quantised(format))
        store_number(format.scale_type, place.scales, 0, number);
    else if (const TokenBlockInfo* info = token_block_info(format.type))
        store_number(QUIRE_F16, static_cast<char*>(place.row) + info->code_bytes(dim), place.token, number);
    else if (block_info(format.type))
        store_number(QUIRE_F16, place.row, 0, number);
    else
        store_number(format.type, place.row, 0, number);
}

void CacheSide::negate(int64_t slot, int head, int group) {
    const TokenPlace place = at(slot, head);
    const TokenBlockInfo* const info = token_block_info(format.type);
    void* const numbers = info ? static_cast<char*>(place.row) + info->code_bytes(dim) : place.scales;
    const int index = info ? group * kBlockTokens + place.token : group;
    const quire_type type = info ? QUIRE_F16 : format.scale_type;
    store_number(type, numbers, index, -load_number(type, numbers, index));
}

// ---- Tensors ----

Tensors::Tensors(const Case& c) : spec(c) {
    place();
    make_indices();
    make_query();
    make_cache(&key, spec.key_format, spec.D);
    if (spec.value_in_key)
        view_keys();
    else
        make_cache(&value, spec.value_format, spec.Dv);
    make_mask();
    make_slopes();
    make_tree();
    make_sinks();
    make_outputs();
}

GuardedBuffer Tensors::allocate(quire_tensor* view) const {
    GuardedBuffer buffer(extent(*view) + (spec.unaligned ? 1 : 0), spec.flush);
    view->data = buffer.as<char>() + (spec.unaligned && spec.flush == Flush::begin ? 1 : 0);
    return buffer;
}

quire_tensor Tensors::rows_of_heads(quire_type type, int64_t rows, int heads, int dim) const {
    const int64_t shape[] = {rows, heads, dim};
    quire_tensor view = quire_tensor_of(nullptr, type, 3, shape);
    if (!spec.spread) return view;
    view.strides[1] = dim + 3;
    view.strides[0] = heads * view.strides[1] + 5;
    ignore_single(&view);
    return view;
}

// Sequences (pages) get their rows in random order, with a few dead rows between them; the first row and the
// last one of the cache are live, so that the guard pages touch rows that are read.
void Tensors::place() {
    struct Chunk {
        size_t b, page;
        int64_t rows;
    };
    Random random(spec.order_seed, kPlacement);
    std::vector<Chunk> chunks;
    starts_ = key_starts_ = {0};
    for (const Lengths& s : spec.sequences) {
        const size_t b = row_starts_.size();
        starts_.push_back(starts_.back() + s.queries);
        key_starts_.push_back(key_starts_.back() + s.keys);
        row_starts_.emplace_back();
        const int64_t whole =
            spec.placement == Placement::pages ? spec.page_size : std::max<int64_t>(s.keys, 1);
        for (int64_t t = 0; t < s.keys; t += whole) {
            chunks.push_back({b, row_starts_[b].size(), std::min(whole, s.keys - t)});
            row_starts_[b].push_back(0);
        }
        if (row_starts_[b].empty() && spec.placement != Placement::pages) row_starts_[b].push_back(0);
    }
    const bool dense = spec.placement == Placement::dense;
    if (!dense) random.shuffle(chunks);
    int64_t other_heads = 0;  // their rows, behind those of the page before
    for (const Chunk& chunk : chunks) {
        slots_ += other_heads;
        if (!dense && slots_ > 0) slots_ += random.below(4) * spec.row_step();
        row_starts_[chunk.b][chunk.page] = slots_;
        const int64_t rows = spec.has_whole_pages() ? spec.page_size : chunk.rows;
        other_heads = spec.has_whole_pages() ? (spec.Hk - 1) * rows : 0;
        slots_ += (rows + spec.row_step() - 1) / spec.row_step() * spec.row_step();
    }
}

int64_t Tensors::slot(int64_t b, int64_t t) const {
    const std::vector<int64_t>& starts = row_starts_[size_t(b)];
    if (spec.placement != Placement::pages) return starts[0] + t;
    return starts[size_t(t / spec.page_size)] + t % spec.page_size;
}

GuardedBuffer Tensors::make_index(const std::vector<int64_t>& values, quire_tensor* view) const {
    const int64_t count = int64_t(values.size());
    *view = quire_tensor_of(nullptr, QUIRE_INT64, 1, &count);
    if (spec.spread) view->strides[0] = 2;
    GuardedBuffer buffer = allocate(view);
    buffer.fill_with<int64_t>(-77);
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(element(*view, i, 0), &values[size_t(i)], sizeof values[0]);
    return buffer;
}

void Tensors::make_indices() {
    seqstarts = make_index(starts_, &seqstarts_view);
    kvstarts = make_index(key_starts_, &kvstarts_view);
    std::vector<int64_t> table;
    if (spec.placement == Placement::offsets)
        for (const auto& starts : row_starts_) table.push_back(starts[0]);
    size_t pages = 0;
    for (const auto& starts : row_starts_) pages = std::max(pages, starts.size());
    if (spec.placement == Placement::pages) {
        pages += spec.spread ? 2 : 0;  // a table that is wider than it need be
        for (const auto& starts : row_starts_) {
            table.insert(table.end(), starts.begin(), starts.end());
            table.resize((size_t(&starts - row_starts_.data()) + 1) * pages, INT64_MIN);  // never read
        }
    }
    cachestarts = make_index(table, &cachestarts_view);
    std::vector<int64_t> at, begins, ends;
    for (int64_t b = 0; b < spec.B(); ++b) {
        int64_t begin = 0, end = 0;
        spec.key_range(b, &begin, &end);
        at.push_back(spec.position(b, 0));
        begins.push_back(begin);
        ends.push_back(end);
    }
    positions = make_index(at, &positions_view);
    key_begin = make_index(begins, &key_begin_view);
    key_end = make_index(ends, &key_end_view);
    if (spec.placement != Placement::pages) return;
    quire_tensor& view = cachestarts_view;
    view.rank = 2;
    view.shape[0] = spec.B();
    view.shape[1] = int64_t(pages);
    view.strides[1] = view.strides[0];
    view.strides[0] *= int64_t(pages);
}

void Tensors::make_query() {
    query_view = rows_of_heads(spec.type, spec.n(), spec.H, spec.D);
    query = allocate(&query_view);
    fill_dead(spec.clean, &query, spec.type);
    for (int64_t b = 0; b < spec.B(); ++b) {
        Random random(spec.seed, kQuery, spec.id(b));
        for (int64_t token = first_token(b); token < first_token(b + 1); ++token)
            for (int h = 0; h < spec.H; ++h)
                for (int d = 0; d < spec.D; ++d)
                    store_number(spec.type, element(query_view, token, h), d, random.normal());
    }
}

void Tensors::make_cache(CacheSide* side, const quire_format& format, int dim) {
    side->format = format;
    side->side = side == &key ? Side::key : Side::value;
    side->dim = dim;
    const int64_t groups = is_quantised(format) ? dim / format.quant_group : 0;
    const int step = tokens_of_block(format);
    const int64_t rows_shape[] = {slots_ / step, spec.Hk, step > 1 ? block_bytes(format, dim) : dim},
                  scales_shape[] = {slots_, spec.Hk, groups};
    side->rows_view = quire_tensor_of(nullptr, format.type, 3, rows_shape);
    side->scales_view = quire_tensor_of(nullptr, format.scale_type, 3, scales_shape);
    for (quire_tensor* view : {&side->rows_view, &side->scales_view}) {
        set_layout(spec, view == &side->rows_view ? spec.page_size / step : spec.page_size, view);
        if (spec.spread) ignore_single(view);
    }
    side->rows = allocate(&side->rows_view);
    fill_dead(spec.clean, &side->rows, format.type);
    if (groups > 0) {
        side->scales = allocate(&side->scales_view);
        fill_dead(spec.clean, &side->scales, format.scale_type);
    }

    std::vector<float> row(static_cast<size_t>(dim));
    for (int64_t b = 0; b < spec.B(); ++b) {
        Random random(spec.seed, side == &key ? kKey : kValue, spec.id(b));
        for (int64_t t = 0; t < spec.sequences[size_t(b)].keys; ++t)
            for (int head = 0; head < spec.Hk; ++head) {
                for (float& x : row) x = random.normal();
                side->store(slot(b, t), head, row);
            }
    }
}

// Without buffers of its own, and with the keys' numbers.
void Tensors::view_keys() {
    value.format = spec.value_format;
    value.side = Side::value;
    value.dim = spec.Dv;
    value.rows_view = key.rows_view;
    value.rows_view.shape[2] = spec.Dv;
    value.scales_view = key.scales_view;
    if (is_quantised(value.format)) value.scales_view.shape[2] = spec.Dv / value.format.quant_group;
}

void Tensors::make_outputs() {
    output_view = rows_of_heads(spec.type, spec.n(), spec.H, spec.Dv);
    output = allocate(&output_view);
    quire_tensor lse_rows = rows_of_heads(QUIRE_F32, spec.n(), spec.H, 1);
    lse_view = lse_rows;
    lse_view.rank = 2;
    lse = allocate(&lse_view);
    output_gaps_ = gaps_of(output, output_view);
    lse_gaps_ = gaps_of(lse, lse_view);
}

float Tensors::query_at(int64_t token, int h, int d) const {
    return load_number(spec.type, element(query_view, token, h), d);
}

float Tensors::output_at(int64_t token, int h, int d) const {
    return load_number(spec.type, element(output_view, token, h), d);
}

float Tensors::lse_at(int64_t token, int h) const {
    return load_number(QUIRE_F32, element(lse_view, token, h), 0);
}

quire_attention_args Tensors::args() const {
    quire_attention_args a = {};
    a.struct_size = sizeof a;
    a.query = &query_view;
    a.key = &key.rows_view;
    a.value = &value.rows_view;
    a.key_scale = is_quantised(key.format) ? &key.scales_view : nullptr;
    a.value_scale = is_quantised(value.format) ? &value.scales_view : nullptr;
    a.seqstarts = &seqstarts_view;
    a.kvstarts = &kvstarts_view;
    a.cachestarts = spec.placement == Placement::dense ? nullptr : &cachestarts_view;
    a.attn_mask = spec.mask_rank != 0 ? &mask_view : nullptr;
    a.attn_mask_slopes = spec.has_slopes() ? &slopes_view : nullptr;
    a.sinks = spec.sinks ? &sinks_view : nullptr;
    a.decoding_batches = spec.decoding_batches;
    a.output = &output_view;
    a.lse = spec.lse ? &lse_view : nullptr;
    a.query_positions = spec.positions ? &positions_view : nullptr;
    a.key_begin = spec.key_ranges ? &key_begin_view : nullptr;
    a.key_end = spec.key_ranges ? &key_end_view : nullptr;
    a.tree_mask = spec.tree ? &tree_view : nullptr;
    return a;
}

std::vector<GuardedBuffer*> Tensors::inputs() {
    std::vector<GuardedBuffer*> all = {&query,       &key.rows,  &seqstarts, &kvstarts,
                                       &cachestarts, &positions, &key_begin, &key_end};
    if (is_quantised(key.format)) all.push_back(&key.scales);
    if (!spec.value_in_key) all.push_back(&value.rows);
    if (!spec.value_in_key && is_quantised(value.format)) all.push_back(&value.scales);
    if (spec.mask_rank != 0) all.push_back(&mask);
    if (spec.has_slopes()) all.push_back(&slopes);
    if (spec.tree) all.push_back(&tree);
    if (spec.sinks) all.push_back(&sinks);
    return all;
}

void Tensors::prepare_run() {
    output.fill(kSentinel);
    lse.fill(kSentinel);
    for (GuardedBuffer* buffer : inputs()) buffer->forbid_writes();
}

void Tensors::allow_writes() {
    for (GuardedBuffer* buffer : inputs()) buffer->allow_access();
}

bool Tensors::gaps_intact() const {
    if (!spec.lse) {
        for (size_t i = 0; i < lse.size(); ++i)
            if (lse.as<uint8_t>()[i] != kSentinel) return false;
    }
    return holds_sentinel(output, output_gaps_) && holds_sentinel(lse, lse_gaps_);
}

}  // namespace quire::test
