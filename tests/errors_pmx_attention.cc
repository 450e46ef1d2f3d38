// Wrong calls of PMX MultiHeadAttention (both forms) and of the static MultiHeadCacheAttention.
#include <cmath>
#include <limits>

#include "tests/errors_table.h"
#include "tests/pmx_calls.h"

namespace quire::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Attributes that the three have in common.
template <typename Call>
void expect_wrong_attributes() {
    expect_wrong_descs<Call>({
        {"no heads", [](Call& c) { c.desc.num_heads = 0; }, "num_heads is 0: must be 1 to 1048576"},
        {"kv heads that do not divide", [](Call& c) { c.desc.num_kv_heads = 3; },
         "num_kv_heads is 3: must divide num_heads, 4"},
        {"kv heads negative", [](Call& c) { c.desc.num_kv_heads = -2; },
         "num_kv_heads is -2: must be 0 to 1048576"},
        {"head_dim 1025", [](Call& c) { c.desc.head_dim = 1025; }, "head_dim is 1025: must be 1 to 1024"},
        {"softmax_scale infinite", [](Call& c) { c.desc.softmax_scale = INFINITY; },
         "softmax_scale is inf: must be finite"},
        {"soft cap NaN", [](Call& c) { c.desc.logits_soft_cap = NAN; },
         "logits_soft_cap is nan: must be finite and >= 0"},
        {"precision 3", [](Call& c) { c.desc.precision = quire_precision(3); },
         "precision is 3: must be 0 to 2"},
    });
}

TEST(ErrorsPmxAttention, DynamicDescriptor) {
    using Call = PmxDynamicAttentionCall;
    expect_wrong_attributes<Call>();
    expect_wrong_descs<Call>({
        {"no struct size", [](Call& c) { c.desc.struct_size = 1; },
         "desc.struct_size is 1: must be sizeof the struct, 56"},
        {"bf16", [](Call& c) { c.desc.type = QUIRE_BF16; }, "type is bf16: must be f32 or f16"},
        {"no type", [](Call& c) { c.desc.type = QUIRE_NONE; }, "type is none: must be f32 or f16"},
    });
}

TEST(ErrorsPmxAttention, Dynamic) {
    using Call = PmxDynamicAttentionCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no struct size", [](Call& c) { c.args.struct_size = 0; },
             "args.struct_size is 0: must be sizeof the struct, 104"},
            {"no query", [](Call& c) { c.args.query = nullptr; },
             "query is NULL: must be a tensor [n, H, D]"},
            {"query of a batch", [](Call& c) { c.query.rank = 4; }, "query has rank 4: must be 3, [n, H, D]"},
            {"query f16", [](Call& c) { c.query.type = QUIRE_F16; }, "query has type f16: must be f32"},
            {"query of two heads", [](Call& c) { c.query.shape[1] = 2; },
             "query has shape [4, 2, 16]: dimension 1 of [n, H, D] must be 4"},
            {"query in columns", [](Call& c) { c.query.strides[2] = 2; },
             "query has stride 2 in its last dimension: must be 1"},
            {"no key", [](Call& c) { c.args.key = nullptr; },
             "key is NULL: must be a tensor [>= kvstarts[B], Hk, D]"},
            {"key of query heads", [](Call& c) { c.key.shape[1] = 4; },
             "key has shape [13, 4, 16]: dimension 1 of [>= kvstarts[B], Hk, D] must be 2"},
            {"value of fewer rows", [](Call& c) { c.value.shape[0] = 12; },
             "value has shape [12, 2, 16]: dimension 0 of [>= kvstarts[B], Hk, D] must be 13"},
            {"value without data", [](Call& c) { c.value.data = nullptr; },
             "value has null data: must point at [13, 2, 16] elements"},
            {"fewer rows than kvstarts says", [](Call& c) { c.key.shape[0] = c.value.shape[0] = 10; },
             "kvstarts[2] is 11: must be at most the rows of key, 10"},
            {"no seqstarts", [](Call& c) { c.args.seqstarts = nullptr; },
             "seqstarts is NULL: must be a tensor [B + 1]"},
            {"seqstarts not to n", [](Call& c) { entry(c.seqstarts, 2) = 3; },
             "seqstarts[2] is 3: must be n, 4"},
            {"no kvstarts", [](Call& c) { c.args.kvstarts = nullptr; },
             "kvstarts is NULL: must be a tensor [B + 1]"},
            {"kvstarts of one sequence", [](Call& c) { c.kvstarts.shape[0] = 2; },
             "kvstarts has shape [2]: dimension 0 of [B + 1] must be 3"},
            {"kvstarts not monotone", [](Call& c) { entry(c.kvstarts, 1) = kMax; },
             "kvstarts[2] is 11: must be >= kvstarts[1], which is 9223372036854775807"},
            {"decoding_batches 3", [](Call& c) { c.args.decoding_batches = 3; },
             "decoding_batches is 3: must be 0 to 2"},
            {"mask bool", [](Call& c) { c.attn_mask.type = QUIRE_BOOL; },
             "attn_mask has type bool: must be the query's, f32"},
            {"mask too narrow", [](Call& c) { c.attn_mask.shape[2] = 10; },
             "attn_mask has 10 columns: must have at least kvstarts[B], 11"},
            {"mask of three heads", [](Call& c) { c.attn_mask.shape[0] = 3; },
             "attn_mask has shape [3, 4, 12]: its first dimension must be 1 or num_heads, 4"},
            {"sinks f16", [](Call& c) { c.sinks.type = QUIRE_F16; }, "sinks has type f16: must be f32"},
            {"no attn_output", [](Call& c) { c.args.attn_output = nullptr; },
             "attn_output is NULL: must be a tensor [n, H, D]"},
            {"attn_output in columns", [](Call& c) { c.attn_output.strides[2] = 2; },
             "attn_output has stride 2 in its last dimension: must be 1"},
            {"lse of one head", [](Call& c) { c.lse.shape[1] = 1; },
             "lse has shape [4, 1]: dimension 1 of [n, H] must be 4"},
        });
}

TEST(ErrorsPmxAttention, StaticDescriptor) {
    using Call = PmxAttentionCall;
    expect_wrong_attributes<Call>();
    expect_wrong_descs<Call>({
        {"int8", [](Call& c) { c.desc.type = QUIRE_INT8; }, "type is int8: must be f32 or f16"},
    });
}

TEST(ErrorsPmxAttention, Static) {
    using Call = PmxAttentionCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no struct size", [](Call& c) { c.args.struct_size = 0; },
             "args.struct_size is 0: must be sizeof the struct, 64"},
            {"no query", [](Call& c) { c.args.query = nullptr; },
             "query is NULL: must be a tensor [B, S, H, D]"},
            {"query of rows", [](Call& c) { c.query.rank = 3; }, "query has rank 3: must be 4, [B, S, H, D]"},
            {"key of another batch", [](Call& c) { c.key.shape[0] = 1; },
             "key has shape [1, 7, 2, 16]: dimension 0 of [B, T, Hk, D] must be 2"},
            {"no value", [](Call& c) { c.args.value = nullptr; },
             "value is NULL: must be a tensor [B, T, Hk, D]"},
            {"value of fewer keys", [](Call& c) { c.value.shape[1] = 6; },
             "value has shape [2, 6, 2, 16]: dimension 1 of [B, T, Hk, D] must be 7"},
            {"mask of rank 1", [](Call& c) { c.attn_mask.rank = 1; },
             "attn_mask has rank 1: must be 2 to 4, [S, T], [H, S, T] or [B, H, S, T]"},
            {"mask of rank 5", [](Call& c) { c.attn_mask.rank = 5; },
             "attn_mask has rank 5: must be 2 to 4, [S, T], [H, S, T] or [B, H, S, T]"},
            {"mask of fewer keys", [](Call& c) { c.attn_mask.shape[3] = 6; },
             "attn_mask has shape [2, 4, 3, 6]: must broadcast to [B, H, S, T], [2, 4, 3, 7]"},
            {"mask of more queries", [](Call& c) { c.attn_mask.shape[2] = 4; },
             "attn_mask has shape [2, 4, 4, 7]: must broadcast to [B, H, S, T], [2, 4, 3, 7]"},
            {"mask of no sequences", [](Call& c) { c.attn_mask.shape[0] = 0; },
             "attn_mask has shape [0, 4, 3, 7]: must broadcast to [B, H, S, T], [2, 4, 3, 7]"},
            {"mask f16", [](Call& c) { c.attn_mask.type = QUIRE_F16; },
             "attn_mask has type f16: must be the query's, f32"},
            {"mask without data", [](Call& c) { c.attn_mask.data = nullptr; },
             "attn_mask has null data: must point at [2, 4, 3, 7] elements"},
            {"sinks of two heads", [](Call& c) { c.sinks.shape[0] = 2; },
             "sinks has shape [2]: dimension 0 of [H] must be 4"},
            {"attn_output f16", [](Call& c) { c.attn_output.type = QUIRE_F16; },
             "attn_output has type f16: must be f32"},
            {"attn_output of one query", [](Call& c) { c.attn_output.shape[1] = 1; },
             "attn_output has shape [2, 1, 4, 16]: dimension 1 of [B, S, H, D] must be 3"},
            {"lse of rank 2", [](Call& c) { c.lse.rank = 2; }, "lse has rank 2: must be 3, [B, S, H]"},
        });
}

TEST(ErrorsPmxAttention, StaticCacheDescriptor) {
    using Call = PmxCacheAttentionCall;
    expect_wrong_attributes<Call>();
    expect_wrong_descs<Call>({
        {"bf16", [](Call& c) { c.desc.query_type = QUIRE_BF16; }, "query_type is bf16: must be f32 or f16"},
        {"cache_layout 2", [](Call& c) { c.desc.cache_layout = 2; }, "cache_layout is 2: must be 0 to 1"},
        {"layer_idx past the layers", [](Call& c) { c.desc.layer_idx = 2; },
         "layer_idx is 2: must be 0 to 1"},
        {"quant_bit 16", [](Call& c) { c.desc.quant_bit = 16; }, "quant_bit is 16: must be 0, 8 or 4"},
        {"quant_group 5", [](Call& c) { c.desc.quant_group = 5; },
         "quant_group is 5: must divide head_dim, 16"},
        {"cache f32", [](Call& c) { c.desc.cache_type = QUIRE_F32; },
         "cache_type is f32: must be int8 where quant_bit is 8"},
    });
}

TEST(ErrorsPmxAttention, StaticCache) {
    using Call = PmxCacheAttentionCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no struct size", [](Call& c) { c.args.struct_size = 0; },
             "args.struct_size is 0: must be sizeof the struct, 88"},
            {"no query", [](Call& c) { c.args.query = nullptr; },
             "query is NULL: must be a tensor [B, S, H, D]"},
            {"current_key of another batch", [](Call& c) { c.current_key.shape[0] = 1; },
             "current_key has shape [1, 3, 2, 16]: dimension 0 of [B, S, Hk, D] must be 2"},
            {"current_key of fewer tokens", [](Call& c) { c.current_key.shape[1] = 2; },
             "current_key has shape [2, 2, 2, 16]: dimension 1 of [B, S, Hk, D] must be 3"},
            {"no current_value", [](Call& c) { c.args.current_value = nullptr; },
             "current_value is NULL: must be a tensor [B, S, Hk, D]"},
            {"current_value in columns", [](Call& c) { c.current_value.strides[3] = 2; },
             "current_value has stride 2 in its last dimension: must be 1"},
            {"no start_pos", [](Call& c) { c.args.start_pos = nullptr; },
             "start_pos is NULL: must be a scalar, [] or [1]"},
            {"start_pos int32", [](Call& c) { c.start_pos.type = QUIRE_INT32; },
             "start_pos has type int32: must be int64"},
            {"start_pos of each sequence",
             [](Call& c) {
                 c.start_pos.rank = 1;
                 c.start_pos.shape[0] = 2;
             },
             "start_pos has shape [2]: dimension 0 of [1] must be 1"},
            {"start_pos of rank 2", [](Call& c) { c.start_pos.rank = 2; },
             "start_pos has rank 2: must be 0, []"},
            {"start_pos without data", [](Call& c) { c.start_pos.data = nullptr; },
             "start_pos has null data: must point at [] elements"},
            {"start_pos negative", [](Call& c) { entry(c.start_pos, 0) = -1; },
             "start_pos is -1: must be >= 0"},
            {"start_pos past the cache", [](Call& c) { entry(c.start_pos, 0) = 8; },
             "start_pos is 8: with 3 new tokens must be at most MaxS of cache, 10"},
            {"start_pos INT64_MAX", [](Call& c) { entry(c.start_pos, 0) = kMax; },
             "start_pos is 9223372036854775807: with 3 new tokens must be at most MaxS of cache, 10"},
            {"no cache", [](Call& c) { c.args.cache = nullptr; },
             "cache is NULL: must be a tensor (L, MaxB, 2, Hk, MaxS, D)"},
            {"cache of dynamic_batching", [](Call& c) { c.cache.rank = 5; },
             "cache has rank 5: must be 6, (L, MaxB, 2, Hk, MaxS, D)"},
            {"cache of one sequence", [](Call& c) { c.cache.shape[1] = c.scale.shape[1] = 1; },
             "cache has MaxB 1: must be at least the sequences of current_key, 2"},
            {"cache of one layer", [](Call& c) { c.cache.shape[0] = 1; },
             "cache has shape [1, 3, 2, 2, 10, 16]: dimension 0 of (L, MaxB, 2, Hk, MaxS, D) must be 2"},
            {"cache positions on each other", [](Call& c) { c.cache.strides[4] = 0; },
             "cache has stride 0 in dimension 4: must keep its elements apart, it is written"},
            {"no scale", [](Call& c) { c.args.scale = nullptr; },
             "scale is NULL: must be a tensor (L, MaxB, 2, Hk, MaxS, D / quant_group)"},
            {"scale of fewer sequences", [](Call& c) { c.scale.shape[1] = 2; },
             "scale has shape [2, 2, 2, 2, 10, 2]: dimension 1 of (L, MaxB, 2, Hk, MaxS, D / quant_group) "
             "must be 3"},
            {"scale of fewer positions", [](Call& c) { c.scale.shape[4] = 7; },
             "scale has shape [2, 3, 2, 2, 7, 2]: dimension 4 of (L, MaxB, 2, Hk, MaxS, D / quant_group) "
             "must be 10"},
            {"mask of two heads", [](Call& c) { c.attn_mask.shape[0] = 2; },
             "attn_mask has shape [2, 3, 7]: must broadcast to [B, H, S, T], [2, 4, 3, 7]"},
            {"attn_output heads on each other", [](Call& c) { c.attn_output.strides[2] = 0; },
             "attn_output has stride 0 in dimension 2: must keep its elements apart, it is written"},
            {"lse f16", [](Call& c) { c.lse.type = QUIRE_F16; }, "lse has type f16: must be f32"},
        });
}

TEST(ErrorsPmxAttention, PlanOfAnotherOperator) {
    PmxAttentionCall attention;
    PmxCacheAttentionCall cached;
    quire_plan* plan = nullptr;
    ASSERT_EQ(attention.plan(inline_context(), &plan), QUIRE_OK) << quire_last_error();
    expect_error(cached.run(plan),
                 "plan is one of quire_pmx_multi_head_attention: must be one of "
                 "quire_pmx_multi_head_cache_attention");
    quire_plan_destroy(plan);
}

}  // namespace
}  // namespace quire::test
