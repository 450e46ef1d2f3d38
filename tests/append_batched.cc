// quire_append with new tokens [B, S, Hk, D] and caches [B, T, Hk, D]: what the packed forms store, and its
// errors.
#include <limits>

#include "tests/errors_table.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// B 2, S 3, Hk 2, D 16, Dv 8, T 8, positions 4 and 5; int8 keys, f16 values.
struct BatchedCall : Call {
    BatchedCall() {
        quire_append_desc_init(&desc);
        desc.num_kv_heads = 2;
        desc.head_dim = 16;
        desc.value_head_dim = 8;
        desc.key_format = {QUIRE_INT8, 8, QUIRE_F32};
        desc.value_format = {QUIRE_F16, 0, QUIRE_NONE};
        new_key = buffers.numbers(QUIRE_F32, {2, 3, 2, 16});
        new_value = buffers.numbers(QUIRE_F32, {2, 3, 2, 8});
        key = buffers.numbers(QUIRE_INT8, {2, 8, 2, 16});
        value = buffers.numbers(QUIRE_F16, {2, 8, 2, 8});
        key_scale = buffers.numbers(QUIRE_F32, {2, 8, 2, 2});
        for (const quire_tensor* t : {&key, &value, &key_scale}) buffers.also_written(*t);
        start_pos = buffers.indices({2}, {4, 5});
        seqstarts = buffers.indices({3}, {0, 3, 6});
        cachestarts = buffers.indices({2}, {0, 8});
        args = {sizeof args, &new_key,   &new_value, &key,    &value,  &key_scale, nullptr,
                nullptr,     &start_pos, nullptr,    nullptr, nullptr, nullptr};
    }
    quire_status plan(quire_context* context, quire_plan** plan) const override {
        return quire_append_plan(context, &desc, plan);
    }
    quire_status run(const quire_plan* plan) override { return quire_append(plan, &args); }
    quire_status prepare(const quire_plan* plan, quire_run** run) override {
        return quire_prepare_append(plan, &args, run);
    }

    quire_append_desc desc;
    quire_append_args args;
    quire_tensor new_key, new_value, key, value, key_scale, start_pos, seqstarts, cachestarts;
};

// The same bytes with sequences and tokens in one dimension.
void flatten(quire_tensor* t) {
    const int64_t shape[] = {t->shape[0] * t->shape[1], t->shape[2], t->shape[3]};
    *t = quire_tensor_of(t->data, t->type, 3, shape);
}

TEST(AppendBatched, StoresWhatPackedFormsStore) {
    for (const Target* target : targets()) {
        SCOPED_TRACE(target->name);
        quire_context* context = context_of(target->name, 1);
        const std::vector<uint8_t> batched = BatchedCall().result(context);
        BatchedCall packed_tokens;
        packed_tokens.args.seqstarts = &packed_tokens.seqstarts;
        for (quire_tensor* t : {&packed_tokens.new_key, &packed_tokens.new_value}) flatten(t);
        EXPECT_EQ(packed_tokens.result(context), batched);
        BatchedCall packed_cache;
        packed_cache.args.cachestarts = &packed_cache.cachestarts;
        for (quire_tensor* t : {&packed_cache.key, &packed_cache.value, &packed_cache.key_scale}) flatten(t);
        EXPECT_EQ(packed_cache.result(context), batched);
    }
}

TEST(AppendBatched, OneStartForAll) {
    BatchedCall each, all;
    entry(each.start_pos, 1) = 4;
    all.start_pos.rank = 0;
    entry(all.start_pos, 1) = -1;  // not read
    EXPECT_EQ(all.result(inline_context()), each.result(inline_context()));
}

TEST(AppendBatched, WrongCalls) {
    using Call = BatchedCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"seqstarts given", [](Call& c) { c.args.seqstarts = &c.seqstarts; },
             "seqstarts is given: must be NULL with a new_key [B, S, Hk, D]"},
            {"cachestarts given", [](Call& c) { c.args.cachestarts = &c.cachestarts; },
             "cachestarts is given: must be NULL with a key [B, T, Hk, D]"},
            {"new_value of fewer tokens", [](Call& c) { c.new_value.shape[1] = 2; },
             "new_value has shape [2, 2, 2, 8]: dimension 1 of [B, S, Hk, Dv] must be 3"},
            {"cache of one sequence", [](Call& c) { c.key.shape[0] = 1; },
             "key has shape [1, 8, 2, 16]: dimension 0 of [B, T, Hk, D] must be 2"},
            {"scales of fewer positions", [](Call& c) { c.key_scale.shape[1] = 7; },
             "key_scale has shape [2, 7, 2, 2]: dimension 1 of [B, T, Hk, D / quant_group] must be 8"},
            {"start_pos past the rows", [](Call& c) { entry(c.start_pos, 1) = 6; },
             "start_pos[1] is 6: positions 6 to 8 must lie in the 8 rows of key"},
            {"start_pos INT64_MAX", [](Call& c) { entry(c.start_pos, 0) = kMax; },
             "start_pos[0] is 9223372036854775807: must leave room for 3 more positions in 63 bits"},
            {"one start_pos past the rows",
             [](Call& c) {
                 c.start_pos.rank = 0;
                 entry(c.start_pos, 0) = 6;
             },
             "start_pos is 6: positions 6 to 8 must lie in the 8 rows of key"},
        });
}

}  // namespace
}  // namespace quire::test
