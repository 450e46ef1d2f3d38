// ggml's block formats: what their bytes mean, spelt out for each, against the table that all code reads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "src/half.h"
#include "tests/support/case.h"
#include "tests/support/random.h"

namespace quire::test {
namespace {

const float kIq4Nl[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float half_at(const uint8_t* at) {
    uint16_t half = 0;
    std::memcpy(&half, at, 2);
    return half_to_float(half);
}

// Value j of a block.
float value_of(quire_type type, const uint8_t* block, int j) {
    const auto nibble = [&](const uint8_t* codes) { return j < 16 ? codes[j] & 15 : codes[j - 16] >> 4; };
    const auto fifth = [&](const uint8_t* bits) { return (bits[j / 8] >> (j % 8) & 1) * 16; };
    const float d = half_at(block), m = half_at(block + 2);
    switch (type) {
        case QUIRE_Q8_0: return d * float(int8_t(block[2 + j]));
        case QUIRE_Q4_0: return d * float(nibble(block + 2) - 8);
        case QUIRE_Q4_1: return d * float(nibble(block + 4)) + m;
        case QUIRE_Q5_0: return d * float((nibble(block + 6) | fifth(block + 2)) - 16);
        case QUIRE_Q5_1: return d * float(nibble(block + 8) | fifth(block + 4)) + m;
        case QUIRE_IQ4_NL: return d * kIq4Nl[nibble(block + 2)];
        default: ADD_FAILURE() << type_name(type) << " has no formula here"; return NAN;
    }
}

TEST(Blocks, QuickBytes) {
    Random random(91);
    EXPECT_EQ(block_types().size(), 6u);
    for (const quire_type type : block_types()) {
        const size_t bytes = size_t(quire_bytes_of(type, 32));
        for (int i = 0; i < 1000; ++i) {
            std::vector<uint8_t> row(3 * bytes);
            for (uint8_t& x : row) x = uint8_t(random.bits());
            float values[96];
            decode_row(plain_format(type), 96, row.data(), nullptr, values);
            for (int j = 0; j < 96; ++j) {
                const float wanted = value_of(type, &row[size_t(j / 32) * bytes], j % 32);
                if (std::isnan(wanted))
                    ASSERT_TRUE(std::isnan(values[j])) << type_name(type);
                else
                    ASSERT_EQ(values[j], wanted) << type_name(type) << " value " << j;
            }
        }
    }
}

// As near as the codes are apart; a row that they can hold comes back as it was.
TEST(Blocks, QuickEncode) {
    Random random(92);
    for (const quire_type type : block_types()) {
        const BlockInfo& info = *block_info(type);
        std::vector<uint8_t> row(size_t(2 * info.bytes));
        for (int i = 0; i < 300; ++i) {
            float values[64], back[64], again[64], largest = 0;
            for (float& x : values) largest = std::max(largest, std::fabs(x = random.normal()));
            encode_row(plain_format(type), 64, QUIRE_F32, values, row.data(), nullptr);
            decode_row(plain_format(type), 64, row.data(), nullptr, back);
            const float step = 2 * largest / float(info.levels() - 1) * (info.table ? 1.5f : 1.1f);
            for (int j = 0; j < 64; ++j) ASSERT_LE(std::fabs(back[j] - values[j]), step) << type_name(type);
            encode_row(plain_format(type), 64, QUIRE_F32, back, row.data(), nullptr);
            decode_row(plain_format(type), 64, row.data(), nullptr, again);
            for (int j = 0; j < 64; ++j)
                ASSERT_NEAR(again[j], back[j], info.has_min ? step * 0.1f : largest * 1e-3f)
                    << type_name(type);
        }
        const float zeros[64] = {};
        float back[64];
        encode_row(plain_format(type), 64, QUIRE_F32, zeros, row.data(), nullptr);
        decode_row(plain_format(type), 64, row.data(), nullptr, back);
        for (float x : back) EXPECT_EQ(x, 0) << type_name(type);
    }
}

TEST(Blocks, QuickBytesOf) {
    EXPECT_EQ(quire_bytes_of(QUIRE_Q8_0, 64), 68);
    EXPECT_EQ(quire_bytes_of(QUIRE_Q4_0, 32), 18);
    EXPECT_EQ(quire_bytes_of(QUIRE_Q4_1, 32), 20);
    EXPECT_EQ(quire_bytes_of(QUIRE_Q5_0, 32), 22);
    EXPECT_EQ(quire_bytes_of(QUIRE_Q5_1, 32), 24);
    EXPECT_EQ(quire_bytes_of(QUIRE_IQ4_NL, 32), 18);
    EXPECT_EQ(quire_bytes_of(QUIRE_INT4, 6), 3);
    EXPECT_EQ(quire_bytes_of(QUIRE_F16, 3), 6);
    EXPECT_EQ(quire_bytes_of(QUIRE_Q8_0, 0), 0);
    EXPECT_EQ(quire_bytes_of(QUIRE_Q8_0, 33), 0);
    EXPECT_EQ(quire_bytes_of(QUIRE_INT4, 3), 0);
    EXPECT_EQ(quire_bytes_of(QUIRE_F32, -4), 0);
    EXPECT_EQ(quire_bytes_of(QUIRE_F32, INT64_MAX / 2), 0);
    EXPECT_EQ(quire_bytes_of(QUIRE_NONE, 8), 0);
    EXPECT_EQ(quire_bytes_of(quire_type(99), 8), 0);
}

// One query token, four keys of q8_0 and values of q4_1.
struct Call {
    std::vector<uint8_t> key = std::vector<uint8_t>(4 * 68), value = std::vector<uint8_t>(4 * 20);
    float query[64] = {}, output[32] = {};
    quire_tensor query_view, key_view, value_view, output_view, scale_view;
    quire_attention_desc desc;
    quire_attention_args args = {};

    Call() {
        const int64_t q[] = {1, 1, 64}, k[] = {4, 1, 64}, v[] = {4, 1, 32}, o[] = {1, 1, 32};
        query_view = quire_tensor_of(query, QUIRE_F32, 3, q);
        key_view = quire_tensor_of(key.data(), QUIRE_Q8_0, 3, k);
        value_view = quire_tensor_of(value.data(), QUIRE_Q4_1, 3, v);
        output_view = quire_tensor_of(output, QUIRE_F32, 3, o);
        scale_view = output_view;
        quire_attention_desc_init(&desc);
        desc.num_heads = 1;
        desc.head_dim = 64;
        desc.value_head_dim = 32;
        desc.type = QUIRE_F32;
        desc.key_format = {QUIRE_Q8_0, 7, QUIRE_BOOL};  // what does not count is ignored
        desc.value_format.type = QUIRE_Q4_1;
        args.struct_size = sizeof args;
        args.query = &query_view;
        args.key = &key_view;
        args.value = &value_view;
        args.output = &output_view;
    }
    quire_status run() const {
        quire_plan* plan = nullptr;
        quire_status status = quire_attention_plan(nullptr, &desc, &plan);
        if (status == QUIRE_OK) status = quire_attention(plan, &args);
        quire_plan_destroy(plan);
        return status;
    }
};

// Codes 0 .. 15 with d = 0.5, m = -1: each value is j / 2 - 1, twice. All keys are alike.
TEST(Blocks, QuickCall) {
    Call call;
    for (int t = 0; t < 4; ++t) {
        uint8_t* block = &call.value[size_t(t) * 20];
        const uint16_t d = 0x3800, m = 0xbc00;
        std::memcpy(block, &d, 2);
        std::memcpy(block + 2, &m, 2);
        for (int j = 0; j < 16; ++j) block[4 + j] = uint8_t(j * 17);
    }
    ASSERT_EQ(call.run(), QUIRE_OK) << quire_last_error();
    for (int j = 0; j < 32; ++j) EXPECT_FLOAT_EQ(call.output[j], float(j % 16) / 2 - 1);
}

TEST(Blocks, QuickErrors) {
    const auto expect_error = [](const Call& call, const char* message) {
        EXPECT_EQ(call.run(), QUIRE_INVALID_ARGUMENT) << message;
        EXPECT_STREQ(quire_last_error(), message);
    };
    Call strides, heads, last, scales, type;
    strides.key_view.strides[0] = 68;
    expect_error(strides, "key has stride 68 in dimension 0: must be a multiple of 32 for q8_0");
    last.value_view.strides[2] = 32;
    expect_error(last, "value has stride 32 in its last dimension: must be 1");
    scales.args.key_scale = &scales.scale_view;
    expect_error(scales, "key_scale is given: must be NULL where the format is q8_0");
    type.key_view.type = QUIRE_INT8;
    expect_error(type, "key has type int8: must be q8_0");
    heads.desc.value_head_dim = 48;
    expect_error(heads, "value_format.type is q4_1: needs a head size that is a multiple of 32, got 48");
}

TEST(Blocks, QuickAppendRefuses) {
    quire_append_desc desc;
    quire_append_desc_init(&desc);
    desc.num_kv_heads = 1;
    desc.head_dim = 32;
    desc.type = QUIRE_F32;
    desc.key_format.type = QUIRE_F16;
    desc.value_format.type = QUIRE_IQ4_NL;
    quire_plan* plan = nullptr;
    EXPECT_EQ(quire_append_plan(nullptr, &desc, &plan), QUIRE_UNSUPPORTED);
    EXPECT_EQ(plan, nullptr);
    EXPECT_STREQ(
        quire_last_error(),
        "value_format.type is iq4_nl: blocks are read by attention only, quire_append does not store them");
}

}  // namespace
}  // namespace quire::test
