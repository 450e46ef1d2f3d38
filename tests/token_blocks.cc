// quire's blocks of 16 tokens: the bytes, spelled out by hand, against src/token_blocks.cc; and the kernels
// that take rows out of them and place rows in them.
#include <gtest/gtest.h>

#include <cstring>

#include "jit/kernels.h"
#include "jit/token_rows.h"
#include "tests/support/kernel_rows.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

// Token t, element d of a block as docs/formats.md has it.
int key_code(const uint8_t* block, quire_type type, int t, int d) {
    if (type == QUIRE_INT8_B16) return int8_t(block[d / 4 * 64 + t * 4 + d % 4]);
    const uint8_t byte = block[d / 8 * 64 + t * 4 + d % 8 / 2];
    return int8_t(uint8_t((d % 2 ? byte >> 4 : byte & 15) << 4)) / 16;
}
int value_code(const uint8_t* block, quire_type type, int dim, int t, int d) {
    if (type == QUIRE_INT8_B16) {
        const int place[] = {0, 2, 1, 3};
        return int8_t(block[(t / 4 * dim + d) * 4 + place[t % 4]]);
    }
    const int place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int nibble = place[t % 8];
    const uint8_t byte = block[(t / 8 * dim + d) * 4 + nibble / 2];
    return int8_t(uint8_t((nibble % 2 ? byte >> 4 : byte & 15) << 4)) / 16;
}
float scale_of(const uint8_t* block, quire_type type, int dim, int group, int t, int d) {
    const int codes = type == QUIRE_INT8_B16 ? 16 * dim : 8 * dim;
    return load_number(QUIRE_F16, block + codes, d / group * 16 + t);
}

TEST(TokenBlocks, QuickBytes) {
    Random random(5);
    for (const quire_type type : {QUIRE_INT8_B16, QUIRE_INT4_B16})
        for (const Side side : {Side::key, Side::value}) {
            constexpr int kDim = 24, kGroup = 8;
            const quire_format format = quantised(type, kGroup, QUIRE_F16);
            std::vector<uint8_t> block(size_t(quire_block_bytes(format, kDim)));
            for (uint8_t& x : block) x = uint8_t(random.bits() & 0x77);  // scales are finite
            for (int t = 0; t < 16; ++t) {
                float values[kDim];
                decode_token(format, side, kDim, {block.data(), nullptr, t}, values);
                for (int d = 0; d < kDim; ++d) {
                    const int code = side == Side::key ? key_code(block.data(), type, t, d)
                                                       : value_code(block.data(), type, kDim, t, d);
                    EXPECT_EQ(values[d], float(code) * scale_of(block.data(), type, kDim, kGroup, t, d))
                        << type_name(type) << " token " << t << " element " << d;
                }
            }
        }
}

// A row that is written reads back, and no other token of the block changes.
TEST(TokenBlocks, QuickWriteOneToken) {
    Random random(6);
    for (const quire_type type : {QUIRE_INT8_B16, QUIRE_INT4_B16})
        for (const Side side : {Side::key, Side::value})
            for (int t = 0; t < 16; ++t) {
                constexpr int kDim = 40;
                const quire_format format = quantised(type, 8, QUIRE_F16), rows = row_format(format);
                std::vector<uint8_t> block(size_t(block_bytes(format, kDim)));
                for (uint8_t& x : block) x = uint8_t(random.bits() & 0x77);
                const std::vector<uint8_t> before = block;
                float numbers[kDim], wanted[kDim], got[kDim];
                for (float& x : numbers) x = random.normal();
                uint8_t row[kDim];
                uint16_t scales[kDim / 8];
                encode_row(rows, kDim, QUIRE_F32, numbers, row, scales);
                decode_row(rows, kDim, row, scales, wanted);
                encode_token(format, side, kDim, QUIRE_F32, numbers, {block.data(), nullptr, t});
                for (int other = 0; other < 16; ++other) {
                    decode_token(format, side, kDim, {block.data(), nullptr, other}, got);
                    if (other != t)
                        decode_token(format, side, kDim,
                                     {const_cast<uint8_t*>(before.data()), nullptr, other}, wanted);
                    else
                        decode_row(rows, kDim, row, scales, wanted);
                    EXPECT_EQ(std::memcmp(got, wanted, sizeof got), 0)
                        << type_name(type) << " token " << t << " read " << other;
                }
            }
}

TEST(TokenBlocks, QuickBlockBytes) {
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8_B16, 32, QUIRE_F16), 128), 16 * (128 + 2 * 4));
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT4_B16, 8, QUIRE_F16), 64), 16 * (32 + 2 * 8));
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT4_B16, 8, QUIRE_F16), 60), 0);
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8_B16, 4, QUIRE_F16), 64), 0);
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8_B16, 8, QUIRE_F32), 64), 0);
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8_B16, 8, QUIRE_F16), 0), 0);
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8_B16, 8, QUIRE_F16), -8), 0);
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8, 8, QUIRE_F16), 64), 0);
    EXPECT_EQ(quire_block_bytes(quantised(QUIRE_INT8_B16, 0, QUIRE_F16), 64), 0);
    EXPECT_EQ(quire_bytes_of(QUIRE_INT4_B16, 100), 100);
}

// Plain rows as take_row gives them, of codes of any bits.
void check_rows_kernel(const Target& target, const RowShape& shape, Side side, Flush flush) {
    const jit::RowKey key{&target, shape.format, shape.dim, 0};
    jit::Kernel<jit::TokenRowsArgs> kernel;
    const Status made = make_token_rows(test_code_cache(), key, side, &kernel);
    ASSERT_TRUE(made.ok()) << made.message();
    constexpr int kTokens = 48;
    Random random(shape.dim);
    std::vector<GuardedBuffer> blocks;
    std::vector<const void*> list(kTokens, reinterpret_cast<const void*>(0x10));
    for (int i = 0; i < kTokens; i += kBlockTokens) {
        blocks.emplace_back(size_t(block_bytes(shape.format, shape.dim)), flush);
        for (size_t at = 0; at < blocks.back().size(); ++at)
            blocks.back().as<uint8_t>()[at] = uint8_t(random.bits());
        blocks.back().forbid_writes();
        list[size_t(i)] = blocks.back().data();
    }
    const quire_format taken = row_format(shape.format);
    const size_t row_bytes = size_t(bytes_of(taken.type, shape.dim)), groups = size_t(key.groups());
    GuardedBuffer rows(kTokens * row_bytes, flush), scales(kTokens * groups * 2, flush);
    const GuardedBuffer addresses = GuardedBuffer::of(list, flush);
    poisoned_call<jit::TokenRowsArgs>(
        kernel, {addresses.as<const char*>(), rows.as<char>(), scales.as<char>(), kTokens}, Entry::nan);
    const TokenBlockInfo& info = *token_block_info(shape.format.type);
    for (int t = 0; t < kTokens; ++t) {
        std::vector<uint8_t> plain(size_t(shape.dim)), wanted_scales(groups * 2);
        take_row(info, {side, shape.dim, shape.format.quant_group}, blocks[size_t(t / kBlockTokens)].data(),
                 t % kBlockTokens, plain.data(), wanted_scales.data());
        for (int d = 0; d < shape.dim; ++d)
            ASSERT_EQ(load_code(taken.type, rows.as<uint8_t>() + size_t(t) * row_bytes, d),
                      load_code(info.row_type, plain.data(), d))
                << key.name("rows") << " token " << t << " element " << d;
        ASSERT_EQ(
            std::memcmp(scales.as<uint8_t>() + size_t(t) * groups * 2, wanted_scales.data(), groups * 2), 0)
            << key.name("rows") << " token " << t;
    }
}

TEST(KernelsTokens, QuickRows) {
    for (const Target* target : jit_targets())
        for (const RowShape& shape : token_shapes())
            for (const Side side : {Side::key, Side::value})
                for (const Flush flush : {Flush::end, Flush::begin})
                    check_rows_kernel(*target, shape, side, flush);
}

// Codes of any bits from every token on that a turn may begin with, as place_row puts them; the other tokens
// and the scales stay.
void check_place_kernel(const Target& target, const RowShape& shape, Side side, Flush flush) {
    const jit::RowKey key{&target, shape.format, shape.dim, 0};
    jit::Kernel<jit::TokenPlaceArgs> kernel;
    ASSERT_TRUE(make_token_place(test_code_cache(), key, side, &kernel).ok());
    const TokenBlockInfo& info = *token_block_info(shape.format.type);
    const TokenBlockShape block_shape{side, shape.dim, shape.format.quant_group};
    const int together = info.placed_together(side);
    const size_t stride = size_t(info.placed_row_bytes(shape.dim, shape.format.quant_group));
    Random random(shape.dim);
    for (int token = 0; token < kBlockTokens; token += together)
        for (int end = token + together; end <= kBlockTokens; end += together) {
            GuardedBuffer rows(size_t(end - token) * stride, flush),
                block(size_t(block_bytes(shape.format, shape.dim)), flush);
            for (GuardedBuffer* buffer : {&rows, &block})
                for (size_t i = 0; i < buffer->size(); ++i) buffer->as<uint8_t>()[i] = uint8_t(random.bits());
            rows.forbid_writes();
            std::vector<uint8_t> wanted = block.bytes();
            for (int t = token; t < end; ++t) {
                std::vector<uint8_t> scales(size_t(2 * key.groups()));
                take_row(info, block_shape, wanted.data(), t, std::vector<uint8_t>(size_t(shape.dim)).data(),
                         scales.data());
                place_row(info, block_shape, rows.as<uint8_t>() + size_t(t - token) * stride, scales.data(),
                          wanted.data(), t);
            }
            char* const codes = block.as<char>() + info.codes_at(side, shape.dim, token);
            poisoned_call<jit::TokenPlaceArgs>(kernel, {rows.as<char>(), codes, (end - token) / together},
                                               Entry::nan);
            ASSERT_EQ(block.bytes(), wanted) << kernel.code().name << " tokens " << token << " to " << end;
        }
}

TEST(KernelsTokens, QuickPlace) {
    for (const Target* target : jit_targets())
        for (const RowShape& shape : token_shapes())
            for (const Side side : {Side::key, Side::value})
                for (const Flush flush : {Flush::end, Flush::begin})
                    check_place_kernel(*target, shape, side, flush);
}

// ---- quire_repack ----

struct Repack {
    std::vector<uint8_t> codes, blocks;
    std::vector<uint16_t> factors;
    quire_tensor rows, scales, block_view;
    quire_repack_args args{};

    // 40 rows of layout 2 (heads beside each other, keys and values apart) or 3 (heads apart).
    Repack(quire_type type, int layout, bool is_value) {
        const quire_type row_type = type == QUIRE_INT8_B16 ? QUIRE_INT8 : QUIRE_INT4;
        constexpr int64_t kRows = 40, kHeads = 2, kDim = 24, kGroups = 3;
        Random random(layout);
        const auto view = [&](quire_type of, int64_t last, void* data) {
            const int64_t shape[] = {kRows, kHeads, last};
            quire_tensor t = quire_tensor_of(data, of, 3, shape);
            if (layout == 3) t.strides[0] = last, t.strides[1] = kRows * last;
            return t;
        };
        codes.resize(size_t(kRows * kHeads * kDim));
        factors.resize(size_t(kRows * kHeads * kGroups));
        for (uint8_t& x : codes) x = uint8_t(random.bits());
        for (uint16_t& x : factors) x = uint16_t(random.bits());
        const int64_t bytes = quire_block_bytes(quantised(type, 8, QUIRE_F16), kDim),
                      shape[] = {4, kHeads, bytes};
        blocks.assign(size_t(4 * kHeads * bytes), 0x5a);
        rows = view(row_type, kDim, codes.data());
        scales = view(QUIRE_F16, kGroups, factors.data());
        block_view = quire_tensor_of(blocks.data(), type, 3, shape);
        args = {sizeof args, &rows, &scales, &block_view, is_value, 0, 3, 21, 30};
    }
};

// As encode_token would place the same rows; and back to where they were.
TEST(TokenBlocks, QuickRepack) {
    for (const quire_type type : {QUIRE_INT8_B16, QUIRE_INT4_B16})
        for (const int layout : {2, 3})
            for (const bool is_value : {false, true}) {
                Repack r(type, layout, is_value);
                const quire_format format = quantised(type, 8, QUIRE_F16);
                ASSERT_EQ(quire_repack(&r.args), QUIRE_OK) << quire_last_error();
                for (int i = 0; i < 30; ++i)
                    for (int head = 0; head < 2; ++head) {
                        float wanted[24], got[24];
                        decode_row(row_format(format), 24, element(r.rows, 3 + i, head),
                                   element(r.scales, 3 + i, head), wanted);
                        decode_token(format, is_value ? Side::value : Side::key, 24,
                                     {element(r.block_view, (21 + i) / 16, head), nullptr, (21 + i) % 16},
                                     got);
                        EXPECT_EQ(std::memcmp(got, wanted, sizeof got), 0) << i << " " << head;
                    }
                const std::vector<uint8_t> packed = r.blocks, codes = r.codes;
                const std::vector<uint16_t> factors = r.factors;
                for (int64_t i = 3; i < 33; ++i)
                    for (int64_t head = 0; head < 2; ++head) {
                        std::memset(element(r.rows, i, head), 0, size_t(bytes_of(r.rows.type, 24)));
                        std::memset(element(r.scales, i, head), 0, 6);
                    }
                r.args.to_rows = 1;
                ASSERT_EQ(quire_repack(&r.args), QUIRE_OK) << quire_last_error();
                EXPECT_EQ(r.codes, codes);
                EXPECT_EQ(r.factors, factors);
                EXPECT_EQ(r.blocks, packed);
            }
}

TEST(TokenBlocks, RepackErrors) {
    struct Row {
        void (*change)(Repack* r);
        const char* message;
    };
    const Row rows[] = {
        {[](Repack* r) { r->args.rows = nullptr; }, "rows is NULL: must be a tensor [slots, Hk, D]"},
        {[](Repack* r) { r->args.blocks = nullptr; },
         "blocks is NULL: must be a tensor [blocks, Hk, quire_block_bytes]"},
        {[](Repack* r) { r->block_view.type = QUIRE_INT8; },
         "blocks has type int8: must be int8_b16 or int4_b16"},
        {[](Repack* r) { r->rows.type = QUIRE_INT4; }, "rows has type int4: must be int8"},
        {[](Repack* r) { r->scales.type = QUIRE_F32; }, "scales has type f32: must be f16"},
        {[](Repack* r) { r->scales.shape[2] = 2; },
         "blocks.quant_group is 12: must be a multiple of 8 that divides the head size, 24, for int8_b16"},
        {[](Repack* r) { r->scales.shape[2] = 0; },
         "scales has 0 groups: must divide the 24 elements of a row"},
        {[](Repack* r) { r->block_view.shape[2] = 16; },
         "blocks has shape [4, 2, 16]: dimension 2 of [blocks, Hk, quire_block_bytes] must be 480"},
        {[](Repack* r) { r->args.row_begin = 11; },
         "row_begin is 11: must be 0 to 10, so that its 30 tokens lie in 40 slots"},
        {[](Repack* r) { r->args.slot_begin = 35; },
         "slot_begin is 35: must be 0 to 34, so that its 30 tokens lie in 64 slots"},
        {[](Repack* r) { r->args.count = -1; }, "count is -1: must be 0 to 9223372036854775807"},
        {[](Repack* r) { r->args.is_value = 2; }, "is_value is 2: must be 0 to 1"},
        {[](Repack* r) { r->block_view.strides[0] = 0; },
         "blocks has stride 0 in dimension 0: must keep its elements apart, it is written"},
    };
    for (const Row& row : rows) {
        Repack r(QUIRE_INT8_B16, 2, false);
        row.change(&r);
        const std::vector<uint8_t> before = r.blocks;
        EXPECT_EQ(quire_repack(&r.args), QUIRE_INVALID_ARGUMENT);
        EXPECT_STREQ(quire_last_error(), row.message);
        EXPECT_EQ(r.blocks, before);
    }
}

}  // namespace
}  // namespace quire::test
