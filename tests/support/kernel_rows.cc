#include "tests/support/kernel_rows.h"

#include <algorithm>

#include "jit/byte_loader.h"
#include "jit/qk_amx.h"
#include "jit/qk_fours.h"
#include "jit/scaled_amx.h"
#include "jit/tile_bytes.h"
#include "jit/tile_value_bytes.h"
#include "jit/tile_words.h"
#include "jit/token_qk_amx.h"
#include "jit/token_qk_bytes.h"
#include "jit/weights.h"
#include "jit/word_loader.h"
#include "tests/support/case.h"

namespace quire::test {
namespace {

GuardedBuffer addresses(const std::vector<GuardedBuffer>& buffers, int first, int count, int length) {
    std::vector<const void*> list;
    for (int i = 0; i < length && !buffers.empty(); ++i)
        list.push_back(buffers[size_t(first + std::min(i, count - 1))].data());
    return GuardedBuffer::of(list);
}

GuardedBuffer side_by_side(const std::vector<GuardedBuffer>& buffers, int first, int count, int length) {
    std::vector<uint8_t> bytes;
    for (int i = 0; i < length && !buffers.empty(); ++i) {
        const std::vector<uint8_t> row = buffers[size_t(first + std::min(i, count - 1))].bytes();
        bytes.insert(bytes.end(), row.begin(), row.end());
    }
    return GuardedBuffer::of(bytes);
}

// Any codes, with scales and minima of either sign.
void fill_blocks(const BlockInfo& block, size_t bytes, Random* random, uint8_t* row) {
    for (size_t i = 0; i < bytes; ++i) row[i] = uint8_t(random->bits());
    for (size_t begin = 0; begin < bytes; begin += size_t(block.bytes))
        for (int i = 0; i < block.numbers(); ++i)
            store_number(QUIRE_F16, row + begin, i,
                         random->normal() / (block.table ? 256.f : float(block.levels())));
}

}  // namespace

KernelRows::KernelRows(const jit::RowKey& key, int count, Random* random, Flush flush, Side side)
    : key_(key),
      scales_in_rows_(block_info(key.format.type) || token_block_info(key.format.type)),
      step_(tokens_of_block(key.format)) {
    negative_ = random->below(2) == 0;
    for (int i = 0; i < count; ++i) {
        std::vector<float> numbers(size_t(key.dim));
        for (float& x : numbers) x = random->normal();
        if (step_ > 1) {
            add_to_block(side, flush, random, &numbers);
            continue;
        }
        rows_.emplace_back(size_t(key.row_bytes()), flush);
        void* scales = nullptr;
        if (is_quantised(key.format)) {
            scales_.emplace_back(size_t(key.groups() * type_bits(key.format.scale_type) / 8), flush);
            scales = scales_.back().data();
        }
        if (const BlockInfo* block = block_info(key.format.type))
            fill_blocks(*block, rows_.back().size(), random, rows_.back().as<uint8_t>());
        else
            encode_row(key.format, key.dim, QUIRE_F32, numbers.data(), rows_.back().data(), scales);
        if (scales != nullptr) negate_some(random, scales, 0, 1);
        decode_row(key.format, key.dim, rows_.back().data(), scales, numbers.data());
        rows_.back().forbid_writes();
        if (scales != nullptr) scales_.back().forbid_writes();
        values_.push_back(std::move(numbers));
    }
}

// Of a row: every `step`th number from `first` on.
void KernelRows::negate_some(Random* random, void* scales, int first, int step) const {
    const quire_type type = is_quantised(key_.format) ? key_.format.scale_type : QUIRE_F16;
    for (int g = 0; negative_ && g < key_.groups(); ++g)
        if (random->below(4) == 0)
            store_number(type, scales, first + g * step, -load_number(type, scales, first + g * step));
}

// What is never written keeps NaN scales.
void KernelRows::add_to_block(Side side, Flush flush, Random* random, std::vector<float>* numbers) {
    const int token = count() % step_;
    if (token == 0) {
        rows_.emplace_back(size_t(block_bytes(key_.format, key_.dim)), flush);
        rows_.back().fill_with<uint16_t>(0x7e01);
    }
    rows_.back().allow_access();
    const TokenPlace at{rows_.back().data(), nullptr, token};
    encode_token(key_.format, side, key_.dim, QUIRE_F32, numbers->data(), at);
    const int codes = token_block_info(key_.format.type)->code_bytes(key_.dim);
    negate_some(random, rows_.back().as<char>() + codes, token, step_);
    decode_token(key_.format, side, key_.dim, at, numbers->data());
    rows_.back().forbid_writes();
    values_.push_back(std::move(*numbers));
}

float KernelRows::scale(int row, int group) const {
    if (const BlockInfo* block = block_info(key_.format.type))
        return load_number(QUIRE_F16, rows_[size_t(row)].as<const char>() + group * block->bytes, 0);
    if (step_ == 1) return load_number(key_.format.scale_type, scales_[size_t(row)].data(), group);
    const char* const block = rows_[size_t(row / step_)].as<const char>();
    return load_number(QUIRE_F16, block + token_block_info(key_.format.type)->code_bytes(key_.dim),
                       group * step_ + row % step_);
}

GuardedBuffer KernelRows::rows(int first, int count, int length) const {
    if (step_ > 1) {
        std::vector<const void*> list(size_t(length), reinterpret_cast<const void*>(0x10));
        for (int i = 0; i < length; i += step_)
            list[size_t(i)] = rows_[size_t((first + std::min(i, count - 1)) / step_)].data();
        return GuardedBuffer::of(list);
    }
    return addresses(rows_, first, count, length);
}
GuardedBuffer KernelRows::and_soon(const GuardedBuffer& list) {
    const GuardedBuffer soon = nowhere(jit::kRowsSoon);
    const auto* const begin = list.as<const void*>();
    std::vector<const void*> both(begin, begin + list.size() / sizeof(void*));
    both.insert(both.end(), soon.as<const void*>(), soon.as<const void*>() + jit::kRowsSoon);
    return GuardedBuffer::of(both);
}
GuardedBuffer KernelRows::scales(int first, int count, int length) const {
    return scales_in_rows_ ? rows(first, count, length) : addresses(scales_, first, count, length);
}

GuardedBuffer KernelRows::placed(jit::Placement placement, int first, int count, int length, bool of_scales,
                                 std::vector<GuardedBuffer>* held) const {
    if (placement == jit::Placement::listed)
        return of_scales ? scales(first, count, length) : rows(first, count, length);
    const bool adjacent = placement == jit::Placement::adjacent;
    const int together = adjacent ? length : jit::kKeyPadding;
    std::vector<const void*> list;
    for (int i = 0; i < length; i += together) {  // rows behind the last one are the last one
        const int from = std::min(i, count - 1);
        held->push_back(side_by_side(of_scales && !scales_in_rows_ ? scales_ : rows_, first + from,
                                     count - from, together));
        const size_t bytes = held->back().size() / size_t(together);
        for (int row = 0; row < (adjacent ? 1 : together); ++row)
            list.push_back(held->back().as<const char>() + size_t(row) * bytes);
    }
    return GuardedBuffer::of(list);
}

GuardedBuffer KernelRows::nowhere(int length) {
    std::vector<uint64_t> list;
    for (int i = 0; i < length; ++i) list.push_back(0x10 + uint64_t(i) * 0x1003);
    return GuardedBuffer::of(list);
}

std::vector<RowShape> row_shapes() {
    std::vector<RowShape> shapes;
    for (int dim : {1, 8, 40, 45, 80, 128, 256, 576})
        for (quire_type type : {QUIRE_F32, QUIRE_F16, QUIRE_BF16})
            shapes.push_back({plain_format(type), dim});
    for (quire_type type : {QUIRE_INT8, QUIRE_INT4}) {
        for (int dim : {2, 8, 40, 64, 80, 96, 128, 240})
            for (int group : {1, 5, 8, 16, 32, dim})
                if (dim % group == 0)
                    shapes.push_back({quantised(type, group, group % 2 == 0 ? QUIRE_F16 : QUIRE_F32), dim});
    }
    for (quire_type type : block_types())
        for (int dim : {32, 64, 96, 128, 576}) shapes.push_back({plain_format(type), dim});
    shapes.push_back({quantised(QUIRE_INT8, 9, QUIRE_F32), 45});
    shapes.push_back({quantised(QUIRE_INT4, 32, QUIRE_F16), 160});
    shapes.push_back({quantised(QUIRE_INT4, 32, QUIRE_F16), 192});
    return shapes;
}

std::vector<RowShape> token_shapes() {
    std::vector<RowShape> shapes;
    for (quire_type type : token_block_types())
        for (int dim : {8, 40, 64, 80, 128, 576})
            for (int group : {8, 16, 32, 40, dim})
                if (dim % group == 0) shapes.push_back({quantised(type, group, QUIRE_F16), dim});
    return shapes;
}

bool can_be_words(const quire_format& format) {
    return jit::has_words(format) || token_block_info(format.type);
}

bool is_of_tiles(jit::Products products) {
    return products == jit::Products::two_digit_tiles || products == jit::Products::three_digit_tiles ||
           products == jit::Products::scaled_tiles;
}

bool can_be(const RowShape& shape, const Target& target, jit::Products products) {
    if (products == jit::Products::scaled_words)
        return jit::has_scaled_words({&target, shape.format, shape.dim, 0});
    if (products == jit::Products::scaled_tiles) return jit::has_scaled_amx(shape.format, shape.dim, target);
    if (is_of_tiles(products))
        return jit::has_key_amx(shape.format, shape.dim, target) ||
               jit::has_token_key_amx(shape.format, shape.dim, target);
    const bool of_bytes = products != jit::Products::floats && products != jit::Products::words;
    const int digits = jit::RowKey{&target, shape.format, shape.dim, 0, products}.query_bytes();
    if (of_bytes && token_block_info(shape.format.type))
        return jit::has_token_bytes(shape.format, target, digits);
    if (of_bytes) return jit::has_fours(shape.format, target, digits);
    return products == jit::Products::floats || (can_be_words(shape.format) && !has_minima(shape.format));
}

jit::Products key_products(const jit::RowKey& key, jit::Products wanted) {
    if (wanted == jit::Products::words) return words_if(has_tile_key_words(key));
    if (wanted == jit::Products::bytes && !has_tile_key_bytes(key)) return jit::Products::floats;
    if (wanted == jit::Products::two_bytes && !has_tile_key_two_bytes(key)) return jit::Products::floats;
    if (wanted == jit::Products::three_bytes && !has_tile_key_three_bytes(key)) return jit::Products::floats;
    return wanted;
}

jit::Products value_products(const jit::RowKey& key, jit::Products wanted) {
    if (wanted == jit::Products::three_bytes) return jit::Products::floats;
    const bool beside = wanted == jit::Products::bytes;
    if (beside && has_tile_value_bytes(key)) return wanted;
    if (beside && key.target->bf16) return jit::Products::bfloats;
    const bool words = wanted == jit::Products::words || wanted == jit::Products::two_bytes;
    return beside || words ? words_if(has_tile_value_words(key)) : wanted;
}

jit::CodeCache& test_code_cache() {
    static jit::CodeCache cache(size_t(64) << 20);
    return cache;
}

}  // namespace quire::test
