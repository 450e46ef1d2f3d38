// Wrong calls of quire_append_plan, quire_append and quire_merge_states.
#include <limits>

#include "tests/errors_table.h"

namespace quire::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(ErrorsAppend, Descriptor) {
    using Call = AppendCall;
    expect_wrong_descs<Call>({
        {"no kv heads", [](Call& c) { c.desc.num_kv_heads = 0; }, "num_kv_heads is 0: must be 1 to 1048576"},
        {"head_dim -1", [](Call& c) { c.desc.head_dim = -1; }, "head_dim is -1: must be 1 to 1024"},
        {"head_dim 1025", [](Call& c) { c.desc.head_dim = 1025; }, "head_dim is 1025: must be 1 to 1024"},
        {"value_head_dim -1", [](Call& c) { c.desc.value_head_dim = -1; },
         "value_head_dim is -1: must be 0 to 1024"},
        {"type bool", [](Call& c) { c.desc.type = QUIRE_BOOL; }, "type is bool: must be f32, f16 or bf16"},
        {"key format bool", [](Call& c) { c.desc.key_format.type = QUIRE_BOOL; },
         "key_format.type is bool: must be f32, f16, bf16, int8, int4, q8_0, q4_0, q4_1, q5_0, q5_1, "
         "iq4_nl, int8_b16 or int4_b16"},
        {"groups of 3", [](Call& c) { c.desc.key_format.quant_group = 3; },
         "key_format.quant_group is 3: must divide the head size, 16"},
        {"scale type int8", [](Call& c) { c.desc.key_format.scale_type = QUIRE_INT8; },
         "key_format.scale_type is int8: must be f32 or f16"},
        {"page_size -1", [](Call& c) { c.desc.page_size = -1; }, "page_size is -1: must be 0 to 1073741824"},
    });
}

TEST(ErrorsAppend, Arguments) {
    using Call = AppendCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no new keys", [](Call& c) { c.args.new_key = nullptr; },
             "new_key is NULL: must be a tensor [n, Hk, D]"},
            {"new keys bf16", [](Call& c) { c.new_key.type = QUIRE_BF16; },
             "new_key has type bf16: must be f32"},
            {"new keys of three heads", [](Call& c) { c.new_key.shape[1] = 3; },
             "new_key has shape [4, 3, 16]: dimension 1 of [n, Hk, D] must be 2"},
            {"fewer new values", [](Call& c) { c.new_value.shape[0] = 3; },
             "new_value has shape [3, 2, 8]: dimension 0 of [n, Hk, Dv] must be 4"},
            {"new values without data", [](Call& c) { c.new_value.data = nullptr; },
             "new_value has null data: must point at [4, 2, 8] elements"},
            {"no cache of keys", [](Call& c) { c.args.key = nullptr; },
             "key is NULL: must be a tensor [slots, Hk, D]"},
            {"cache of another type", [](Call& c) { c.value.type = QUIRE_INT8; },
             "value has type int8: must be f16"},
            {"cache rows on each other", [](Call& c) { c.key.strides[0] = 0; },
             "key has stride 0 in dimension 0: must keep its elements apart, it is written"},
            {"scales on each other", [](Call& c) { c.key_scale.strides[1] = 0; },
             "key_scale has stride 0 in dimension 1: must keep its elements apart, it is written"},
            {"cache whose size overflows",
             [](Call& c) { c.value.shape[0] = c.key.shape[0] = c.key_scale.shape[0] = int64_t(1) << 60; },
             "key has shape [1152921504606846976, 2, 16]: its size must fit in 63 bits"},
            {"no scales", [](Call& c) { c.args.key_scale = nullptr; },
             "key_scale is NULL: must be a tensor [slots, Hk, D / quant_group]"},
            {"scales for numbers", [](Call& c) { c.args.value_scale = &c.key_scale; },
             "value_scale is given: must be NULL where the format is f16"},
            {"scales of fewer slots", [](Call& c) { c.key_scale.shape[0] = 19; },
             "key_scale has shape [19, 2, 2]: dimension 0 of [slots, Hk, D / quant_group] must be 20"},
            {"seqstarts not monotone", [](Call& c) { entry(c.seqstarts, 1) = -1; },
             "seqstarts[1] is -1: must be >= seqstarts[0], which is 0"},
            {"seqstarts past n", [](Call& c) { entry(c.seqstarts, 2) = 5; },
             "seqstarts[2] is 5: must be n, 4"},
            {"no start_pos", [](Call& c) { c.args.start_pos = nullptr; },
             "start_pos is NULL: must be a tensor [B]"},
            {"start_pos of rank 2", [](Call& c) { c.start_pos.rank = 2; },
             "start_pos has rank 2: must be 1, [B]"},
            {"one start_pos, past the pages",
             [](Call& c) {
                 c.start_pos.rank = 0;
                 entry(c.start_pos, 0) = 12;
             },
             "cachestarts has 3 pages a sequence: sequence 0 needs 4 for 13 positions"},
            {"one start_pos, negative",
             [](Call& c) {
                 c.start_pos.rank = 0;
                 entry(c.start_pos, 0) = -10;
             },
             "start_pos is -10: must be >= 0"},
            {"start_pos of three sequences", [](Call& c) { c.start_pos.shape[0] = 3; },
             "start_pos has shape [3]: dimension 0 of [B] must be 2"},
            {"start_pos negative", [](Call& c) { entry(c.start_pos, 1) = -1; },
             "start_pos[1] is -1: must be >= 0"},
            {"start_pos that overflows", [](Call& c) { entry(c.start_pos, 0) = kMax; },
             "start_pos[0] is 9223372036854775807: must leave room for 1 more positions in 63 bits"},
            {"start_pos past the pages", [](Call& c) { entry(c.start_pos, 1) = 10; },
             "cachestarts has 3 pages a sequence: sequence 1 needs 4 for 13 positions"},
            {"no page table", [](Call& c) { c.args.cachestarts = nullptr; },
             "cachestarts is NULL: must be a tensor [B, MaxP]"},
            {"page table int32", [](Call& c) { c.cachestarts.type = QUIRE_INT32; },
             "cachestarts has type int32: must be int64"},
            {"page negative", [](Call& c) { entry(c.cachestarts, 4) = -14; },
             "cachestarts[1, 1] is -14: must be 0 to 18, so that its 2 rows lie in the cache's 20 slots"},
            {"page past the end", [](Call& c) { entry(c.cachestarts, 1) = 20; },
             "cachestarts[0, 1] is 20: must be 0 to 19, so that its 1 rows lie in the cache's 20 slots"},
        });
}

TEST(ErrorsMerge, Arguments) {
    using Call = MergeCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no output_a", [](Call& c) { c.a = nullptr; }, "output_a is NULL: must be a tensor [n, H, Dv]"},
            {"no output_b", [](Call& c) { c.b = nullptr; }, "output_b is NULL: must be a tensor [n, H, Dv]"},
            {"no output", [](Call& c) { c.merged = nullptr; }, "output is NULL: must be a tensor [n, H, Dv]"},
            {"no lse_a", [](Call& c) { c.lse_of_a = nullptr; }, "lse_a is NULL: must be a tensor [n, H]"},
            {"no lse_b", [](Call& c) { c.lse_of_b = nullptr; }, "lse_b is NULL: must be a tensor [n, H]"},
            {"codes", [](Call& c) { c.output_a.type = QUIRE_INT8; },
             "output_a has type int8: must be f32, f16 or bf16"},
            {"two types", [](Call& c) { c.output_b.type = QUIRE_BF16; },
             "output_b has type bf16: must be f16"},
            {"another n", [](Call& c) { c.output_b.shape[0] = 2; },
             "output_b has shape [2, 2, 8]: dimension 0 of [n, H, Dv] must be 3"},
            {"output of another n", [](Call& c) { c.output.shape[0] = 2; },
             "output has shape [2, 2, 8]: dimension 0 of [n, H, Dv] must be 3"},
            {"output of rank 2", [](Call& c) { c.output.rank = 2; },
             "output has rank 2: must be 3, [n, H, Dv]"},
            {"output in columns", [](Call& c) { c.output.strides[2] = 3; },
             "output has stride 3 in its last dimension: must be 1"},
            {"output tokens on each other", [](Call& c) { c.output.strides[0] = 0; },
             "output has stride 0 in dimension 0: must keep its elements apart, it is written"},
            {"lse f16", [](Call& c) { c.lse_b.type = QUIRE_F16; }, "lse_b has type f16: must be f32"},
            {"lse of one head", [](Call& c) { c.lse.shape[1] = 1; },
             "lse has shape [3, 1]: dimension 1 of [n, H] must be 2"},
            {"lse without data", [](Call& c) { c.lse_a.data = nullptr; },
             "lse_a has null data: must point at [3, 2] elements"},
            {"stride that overflows", [](Call& c) { c.output_a.strides[0] = kMax; },
             "output_a has stride 9223372036854775807 in dimension 0: its extent must fit in 63 bits"},
        });
}

}  // namespace
}  // namespace quire::test
