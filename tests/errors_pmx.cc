// Wrong calls of quire_pmx_dynamic_multi_head_cache_attention_plan and ..._attention.
#include <cmath>
#include <limits>

#include "tests/errors_table.h"

namespace quire::test {
namespace {

using Call = PmxCall;
using Rows = std::vector<WrongCall<Call>>;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(ErrorsPmx, Descriptor) {
    expect_wrong_descs<Call>({
        {"no heads", [](Call& c) { c.desc.num_heads = 0; }, "num_heads is 0: must be 1 to 1048576"},
        {"kv heads that do not divide", [](Call& c) { c.desc.num_kv_heads = 3; },
         "num_kv_heads is 3: must divide num_heads, 4"},
        {"head_dim 0", [](Call& c) { c.desc.head_dim = 0; }, "head_dim is 0: must be 1 to 1024"},
        {"head_dim 1025", [](Call& c) { c.desc.head_dim = 1025; }, "head_dim is 1025: must be 1 to 1024"},
        {"no layers", [](Call& c) { c.desc.num_layer = 0; }, "num_layer is 0: must be 1 to 1048576"},
        {"layer_idx past the layers", [](Call& c) { c.desc.layer_idx = 2; },
         "layer_idx is 2: must be 0 to 1"},
        {"layer_idx negative", [](Call& c) { c.desc.layer_idx = -1; }, "layer_idx is -1: must be 0 to 1"},
        {"quant_bit 2", [](Call& c) { c.desc.quant_bit = 2; }, "quant_bit is 2: must be 0, 8 or 4"},
        {"quant_group 0", [](Call& c) { c.desc.quant_group = 0; },
         "quant_group is 0: must divide head_dim, 16"},
        {"quant_group -8", [](Call& c) { c.desc.quant_group = -8; },
         "quant_group is -8: must divide head_dim, 16"},
        {"quant_group 6", [](Call& c) { c.desc.quant_group = 6; },
         "quant_group is 6: must divide head_dim, 16"},
        {"int4 of an odd head",
         [](Call& c) {
             c.desc.head_dim = 15;
             c.desc.quant_bit = 4;
             c.desc.quant_group = 5;
         },
         "head_dim is 15: must be even where quant_bit is 4"},
        {"cache_mode 2", [](Call& c) { c.desc.cache_mode = 2; }, "cache_mode is 2: must be 0 to 1"},
        {"cache_layout 4", [](Call& c) { c.desc.cache_layout = 4; }, "cache_layout is 4: must be 0 to 3"},
        {"cache_layout -1", [](Call& c) { c.desc.cache_layout = -1; }, "cache_layout is -1: must be 0 to 3"},
        {"page_size 0", [](Call& c) { c.desc.page_size = 0; }, "page_size is 0: must be 1 to 1073741824"},
        {"page_size -128", [](Call& c) { c.desc.page_size = -128; },
         "page_size is -128: must be 1 to 1073741824"},
        {"query bf16", [](Call& c) { c.desc.query_type = QUIRE_BF16; },
         "query_type is bf16: must be f32 or f16"},
        {"cache type of other bits", [](Call& c) { c.desc.cache_type = QUIRE_INT4; },
         "cache_type is int4: must be int8 where quant_bit is 8"},
        {"cache type of codes without quant_bit",
         [](Call& c) {
             c.desc.quant_bit = 0;
             c.desc.cache_type = QUIRE_INT8;
         },
         "cache_type is int8: must be f32 or f16 where quant_bit is 0"},
        {"scale type int8", [](Call& c) { c.desc.scale_type = QUIRE_INT8; },
         "scale_type is int8: must be f32 or f16"},
        {"softmax_scale NaN", [](Call& c) { c.desc.softmax_scale = NAN; },
         "softmax_scale is nan: must be finite"},
        {"soft cap negative", [](Call& c) { c.desc.logits_soft_cap = -0.5f; },
         "logits_soft_cap is -0.5: must be finite and >= 0"},
        {"precision 7", [](Call& c) { c.desc.precision = quire_precision(7); },
         "precision is 7: must be 0 to 2"},
    });
}

std::unique_ptr<Call> make() { return std::make_unique<Call>(); }

TEST(ErrorsPmx, Tensors) {
    expect_wrong_args(
        make,
        Rows{
            {"no query", [](Call& c) { c.args.query = nullptr; },
             "query is NULL: must be a tensor [n, H, D]"},
            {"query f16", [](Call& c) { c.query.type = QUIRE_F16; }, "query has type f16: must be f32"},
            {"query of rank 4", [](Call& c) { c.query.rank = 4; }, "query has rank 4: must be 3, [n, H, D]"},
            {"query with a token too few", [](Call& c) { c.query.shape[0] = 3; },
             "attn_output has shape [4, 4, 16]: dimension 0 of [n, H, D] must be 3"},
            {"current_key with a token too few", [](Call& c) { c.current_key.shape[0] = 3; },
             "current_key has shape [3, 2, 16]: dimension 0 of [n, Hk, D] must be 4"},
            {"no current_key", [](Call& c) { c.args.current_key = nullptr; },
             "current_key is NULL: must be a tensor [n, Hk, D]"},
            {"current_key of query heads", [](Call& c) { c.current_key.shape[1] = 4; },
             "current_key has shape [4, 4, 16]: dimension 1 of [n, Hk, D] must be 2"},
            {"no current_value", [](Call& c) { c.args.current_value = nullptr; },
             "current_value is NULL: must be a tensor [n, Hk, D]"},
            {"current_value in columns", [](Call& c) { c.current_value.strides[2] = 4; },
             "current_value has stride 4 in its last dimension: must be 1"},
            {"no attn_output", [](Call& c) { c.args.attn_output = nullptr; },
             "attn_output is NULL: must be a tensor [n, H, D]"},
            {"attn_output without data", [](Call& c) { c.attn_output.data = nullptr; },
             "attn_output has null data: must point at [4, 4, 16] elements"},
            {"attn_output heads on each other", [](Call& c) { c.attn_output.strides[1] = 0; },
             "attn_output has stride 0 in dimension 1: must keep its elements apart, it is written"},
            {"no cache", [](Call& c) { c.args.cache = nullptr; },
             "cache is NULL: must be a tensor (MaxT, L, 2, Hk, D)"},
            {"cache f16", [](Call& c) { c.cache.type = QUIRE_F16; }, "cache has type f16: must be int8"},
            {"cache of rank 4", [](Call& c) { c.cache.rank = 4; },
             "cache has rank 4: must be 5, (MaxT, L, 2, Hk, D)"},
            {"cache in another layout", [](Call& c) { std::swap(c.cache.shape[0], c.cache.shape[1]); },
             "cache has shape [2, 20, 2, 2, 16]: dimension 1 of (MaxT, L, 2, Hk, D) must be 2"},
            {"cache without values", [](Call& c) { c.cache.shape[2] = 1; },
             "cache has shape [20, 2, 1, 2, 16]: dimension 2 of (MaxT, L, 2, Hk, D) must be 2"},
            {"cache in columns", [](Call& c) { c.cache.strides[4] = 2; },
             "cache has stride 2 in its last dimension: must be 1"},
            {"cache whose size overflows", [](Call& c) { c.cache.shape[0] = kMax; },
             "cache has shape [9223372036854775807, 2, 2, 2, 16]: its size must fit in 63 bits"},
            {"cache whose stride overflows", [](Call& c) { c.cache.strides[1] = kMax; },
             "cache has stride 9223372036854775807 in dimension 1: its extent must fit in 63 bits"},
            {"cache tokens on each other", [](Call& c) { c.cache.strides[0] = 0; },
             "cache has stride 0 in dimension 0: must keep its elements apart, it is written"},
            {"no scale", [](Call& c) { c.args.scale = nullptr; },
             "scale is NULL: must be a tensor (MaxT, L, 2, Hk, D / quant_group)"},
            {"scale of fewer slots", [](Call& c) { c.scale.shape[0] = 19; },
             "scale has shape [19, 2, 2, 2, 2]: dimension 0 of (MaxT, L, 2, Hk, D / quant_group) must be 20"},
            {"scale of one group", [](Call& c) { c.scale.shape[4] = 1; },
             "scale has shape [20, 2, 2, 2, 1]: dimension 4 of (MaxT, L, 2, Hk, D / quant_group) must be 2"},
            {"scale f16", [](Call& c) { c.scale.type = QUIRE_F16; }, "scale has type f16: must be f32"},
            {"mask f16", [](Call& c) { c.attn_mask.type = QUIRE_F16; },
             "attn_mask has type f16: must be the query's, f32"},
            {"mask too narrow", [](Call& c) { c.attn_mask.shape[1] = 10; },
             "attn_mask has 10 columns: must have at least kvstarts[B], 11"},
            {"sinks too few", [](Call& c) { c.sinks.shape[0] = 1; },
             "sinks has shape [1]: dimension 0 of [H] must be 4"},
            {"lse f16", [](Call& c) { c.lse.type = QUIRE_F16; }, "lse has type f16: must be f32"},
        });
}

TEST(ErrorsPmx, Sequences) {
    expect_wrong_args(
        make,
        Rows{
            {"no seqstarts", [](Call& c) { c.args.seqstarts = nullptr; },
             "seqstarts is NULL: must be a tensor [B + 1]"},
            {"no kvstarts", [](Call& c) { c.args.kvstarts = nullptr; },
             "kvstarts is NULL: must be a tensor [B + 1]"},
            {"no cachestarts", [](Call& c) { c.args.cachestarts = nullptr; },
             "cachestarts is NULL: must be a tensor [B, MaxP]"},
            {"no start_pos", [](Call& c) { c.args.start_pos = nullptr; },
             "start_pos is NULL: must be a tensor [B]"},
            {"seqstarts not monotone", [](Call& c) { entry(c.seqstarts, 1) = 5; },
             "seqstarts[2] is 4: must be >= seqstarts[1], which is 5"},
            {"seqstarts not to n", [](Call& c) { entry(c.seqstarts, 2) = 2; },
             "seqstarts[2] is 2: must be n, 4"},
            {"kvstarts not from 0", [](Call& c) { entry(c.kvstarts, 0) = 2; }, "kvstarts[0] is 2: must be 0"},
            {"kvstarts not monotone", [](Call& c) { entry(c.kvstarts, 2) = 4; },
             "kvstarts[2] is 4: must be >= kvstarts[1], which is 5"},
            {"kvstarts shorter than start_pos says", [](Call& c) { entry(c.kvstarts, 2) = 10; },
             "kvstarts[2] - kvstarts[1] is 5: must be start_pos[1] + its new tokens, 6"},
            {"kvstarts longer than start_pos says", [](Call& c) { entry(c.kvstarts, 1) = 6; },
             "kvstarts[1] - kvstarts[0] is 6: must be start_pos[0] + its new tokens, 5"},
            {"start_pos negative", [](Call& c) { entry(c.start_pos, 0) = -1; },
             "start_pos[0] is -1: must be >= 0"},
            {"start_pos INT64_MAX", [](Call& c) { entry(c.start_pos, 0) = kMax; },
             "start_pos[0] is 9223372036854775807: must leave room for 1 more positions in 63 bits"},
            {"decoding_batches 3", [](Call& c) { c.args.decoding_batches = 3; },
             "decoding_batches is 3: must be 0 to 2"},
            {"decoding_batches -1", [](Call& c) { c.args.decoding_batches = -1; },
             "decoding_batches is -1: must be 0 to 2"},
            {"page negative", [](Call& c) { entry(c.cachestarts, 0) = -4; },
             "cachestarts[0, 0] is -4: must be 0 to 16, so that its 4 rows lie in the cache's 20 slots"},
            {"page past the end", [](Call& c) { entry(c.cachestarts, 4) = 19; },
             "cachestarts[1, 1] is 19: must be 0 to 18, so that its 2 rows lie in the cache's 20 slots"},
            {"page INT64_MAX", [](Call& c) { entry(c.cachestarts, 4) = kMax; },
             "cachestarts[1, 1] is 9223372036854775807: must be 0 to 18, so that its 2 rows lie in the "
             "cache's 20 "
             "slots"},
            {"page table too narrow", [](Call& c) { c.cachestarts.shape[1] = 1; },
             "cachestarts has 1 pages a sequence: sequence 0 needs 2 for 5 positions"},
            {"offsets for pages", [](Call& c) { c.cachestarts.rank = 1; },
             "cachestarts has rank 1: must be 2, [B, MaxP]"},
        });
}

std::unique_ptr<Call> unquantised() {
    auto call = std::make_unique<Call>();
    call->desc.quant_bit = 0;
    call->cache = call->buffers.numbers(QUIRE_F32, {20, 2, 2, 2, 16});
    call->buffers.also_written(call->cache);
    call->args.scale = nullptr;
    return call;
}

TEST(ErrorsPmx, Unquantised) {
    expect_wrong_args(unquantised, Rows{
                                       {"scale given", [](Call& c) { c.args.scale = &c.scale; },
                                        "scale is given: must be NULL where quant_bit is 0"},
                                       {"cache of codes", [](Call& c) { c.cache.type = QUIRE_INT8; },
                                        "cache has type int8: must be f32"},
                                   });
}

std::unique_ptr<Call> int4_offsets() {
    auto call = std::make_unique<Call>();
    call->desc.quant_bit = 4;
    call->desc.cache_mode = 0;
    call->desc.cache_layout = 3;
    call->cache = call->buffers.numbers(QUIRE_INT4, {2, 2, 2, 20, 16});
    call->scale = call->buffers.numbers(QUIRE_F32, {2, 2, 2, 20, 2});
    call->buffers.also_written(call->cache);
    call->buffers.also_written(call->scale);
    call->cachestarts = call->buffers.indices({2}, {15, 2});
    return call;
}

TEST(ErrorsPmx, Int4Offsets) {
    expect_wrong_args(
        int4_offsets,
        Rows{
            {"odd stride of tokens", [](Call& c) { c.cache.strides[3] = 17; },
             "cache has stride 17 in dimension 3: must be a multiple of 2 for int4"},
            {"odd stride of layers", [](Call& c) { c.cache.strides[0] = 1281; },
             "cache has stride 1281 in dimension 0: must be a multiple of 2 for int4"},
            {"heads and tokens the other way", [](Call& c) { std::swap(c.cache.shape[2], c.cache.shape[3]); },
             "cache has shape [2, 2, 20, 2, 16]: dimension 2 of (L, 2, Hk, MaxT, D) must be 2"},
            {"offset negative", [](Call& c) { entry(c.cachestarts, 1) = -1; },
             "cachestarts[1] is -1: must be 0 to 14, so that its 6 rows lie in the cache's 20 slots"},
            {"offset past the end", [](Call& c) { entry(c.cachestarts, 0) = 16; },
             "cachestarts[0] is 16: must be 0 to 15, so that its 5 rows lie in the cache's 20 slots"},
            {"cache too small for a position",
             [](Call& c) {
                 entry(c.start_pos, 1) = 18;
                 entry(c.kvstarts, 2) = 5 + 21;
             },
             "cachestarts[1] is 2: its 21 rows must lie in the cache's 20 slots"},
        });
}

}  // namespace
}  // namespace quire::test
