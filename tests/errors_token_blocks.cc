// Caches in blocks of tokens: what a caller can get wrong about them, and what is accepted.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/run.h"

namespace quire::test {
namespace {

Case pages() {
    Case c;
    c.key_format = c.value_format = quantised(QUIRE_INT8_B16, 8, QUIRE_F16);
    c.D = c.Dv = 24;
    c.H = c.Hk = 2;
    c.placement = Placement::pages;
    c.page_size = 16;
    c.sequences = {{1, 20}, {2, 5}};
    return c;
}

TEST(ErrorsTokenBlocks, Descriptor) {
    struct Row {
        void (*change)(quire_attention_desc* d);
        const char* message;
    };
    const Row rows[] = {
        {[](quire_attention_desc* d) { d->page_size = 24; },
         "page_size is 24: must be a multiple of 16 for int8_b16"},
        {[](quire_attention_desc* d) { d->key_format.quant_group = 12; },
         "key_format.quant_group is 12: must be a multiple of 8 that divides the head size, 24, for "
         "int8_b16"},
        {[](quire_attention_desc* d) { d->key_format.quant_group = 16; },
         "key_format.quant_group is 16: must be a multiple of 8 that divides the head size, 24, for "
         "int8_b16"},
        {[](quire_attention_desc* d) { d->value_format.quant_group = 0; },
         "value_format.quant_group is 0: must be a multiple of 8 that divides the head size, 24, for "
         "int8_b16"},
        {[](quire_attention_desc* d) { d->value_format.quant_group = -8; },
         "value_format.quant_group is -8: must be a multiple of 8 that divides the head size, 24, for "
         "int8_b16"},
        {[](quire_attention_desc* d) { d->value_format.scale_type = QUIRE_F32; },
         "value_format.scale_type is f32: must be f16 for int8_b16"},
        {[](quire_attention_desc* d) { d->head_dim = 20; },
         "key_format.quant_group is 8: must be a multiple of 8 that divides the head size, 20, for int8_b16"},
    };
    for (const Row& row : rows) {
        quire_attention_desc desc = desc_of(pages());
        row.change(&desc);
        quire_plan* plan = nullptr;
        EXPECT_EQ(quire_attention_plan(nullptr, &desc, &plan), QUIRE_INVALID_ARGUMENT);
        EXPECT_STREQ(quire_last_error(), row.message);
    }
    quire_append_desc append;
    quire_append_desc_init(&append);
    append.num_kv_heads = 1, append.head_dim = 8, append.page_size = 8;
    append.key_format = {QUIRE_F32, 0, QUIRE_NONE};
    append.value_format = {QUIRE_INT4_B16, 8, QUIRE_F16};
    quire_plan* plan = nullptr;
    EXPECT_EQ(quire_append_plan(nullptr, &append, &plan), QUIRE_INVALID_ARGUMENT);
    EXPECT_STREQ(quire_last_error(), "page_size is 8: must be a multiple of 16 for int4_b16");
}

void expect_wrong(const Case& c, const std::function<void(Tensors*, quire_attention_args*)>& change,
                  const std::string& message) {
    Tensors tensors(c);
    const quire_attention_desc desc = desc_of(c);
    quire_plan* plan = nullptr;
    ASSERT_EQ(quire_attention_plan(nullptr, &desc, &plan), QUIRE_OK) << quire_last_error();
    quire_attention_args args = tensors.args();
    change(&tensors, &args);
    EXPECT_EQ(quire_attention(plan, &args), QUIRE_INVALID_ARGUMENT);
    EXPECT_EQ(quire_last_error(), message);
    quire_plan_destroy(plan);
}

void set_entry(const quire_tensor& view, int64_t i, int64_t j, int64_t value) {
    std::memcpy(element(view, i, j), &value, sizeof value);
}

TEST(ErrorsTokenBlocks, Arguments) {
    Case c = pages();
    expect_wrong(
        c, [](Tensors* t, quire_attention_args*) { set_entry(t->cachestarts_view, 0, 1, 8); },
        "cachestarts[0, 1] is 8: must be a multiple of 16 for int8_b16");
    expect_wrong(
        c, [](Tensors* t, quire_attention_args*) { t->key.rows_view.shape[2] = 24; },
        "key has shape [" + std::to_string(Tensors(c).slots() / 16) +
            ", 2, 24]: dimension 2 of [slots / 16, Hk, quire_block_bytes] must be 480");
    expect_wrong(
        c, [](Tensors* t, quire_attention_args*) { t->value.rows_view.shape[0] += 1; },
        "value has shape [" + std::to_string(Tensors(c).slots() / 16 + 1) +
            ", 2, 480]: dimension 0 of [slots / 16, Hk, quire_block_bytes] must be " +
            std::to_string(Tensors(c).slots() / 16));
    expect_wrong(
        c, [](Tensors* t, quire_attention_args*) { t->key.rows_view.shape[0] = int64_t(1) << 62; },
        "key has shape [4611686018427387904, 2, 480]: its size must fit in 63 bits");
    expect_wrong(
        c, [](Tensors* t, quire_attention_args* args) { args->key_scale = &t->query_view; },
        "key_scale is given: must be NULL where the format is int8_b16");
    c.placement = Placement::offsets;
    expect_wrong(
        c, [](Tensors* t, quire_attention_args*) { set_entry(t->cachestarts_view, 1, 0, 17); },
        "cachestarts[1] is 17: must be a multiple of 16 for int8_b16");
    c.placement = Placement::dense;
    expect_wrong(
        c, [](Tensors*, quire_attention_args*) {},
        "kvstarts[1] is 20: must be a multiple of 16 for int8_b16");
    c = pages();
    c.key_format = plain_format(QUIRE_F32);  // rows of keys beside blocks of values
    expect_wrong(
        c, [](Tensors* t, quire_attention_args*) { t->key.rows_view.shape[0] -= 1; },
        "key has " + std::to_string(Tensors(c).slots() - 1) +
            " rows: must have a multiple of 16 beside a value of int8_b16");
}

// Lengths are those of tokens: the last block may be filled in part.
TEST(ErrorsTokenBlocks, QuickAccepted) {
    for (const Placement placement : {Placement::dense, Placement::offsets, Placement::pages}) {
        Case c = pages();
        c.placement = placement;
        if (placement == Placement::dense) c.sequences = {{1, 32}, {2, 5}};
        Tensors tensors(c);
        const quire_attention_desc desc = desc_of(c);
        quire_plan* plan = nullptr;
        ASSERT_EQ(quire_attention_plan(nullptr, &desc, &plan), QUIRE_OK) << quire_last_error();
        const quire_attention_args args = tensors.args();
        EXPECT_EQ(quire_attention(plan, &args), QUIRE_OK) << quire_last_error();
        quire_plan_destroy(plan);
    }
}

}  // namespace
}  // namespace quire::test
