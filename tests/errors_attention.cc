// Wrong calls of quire_attention_plan and quire_attention.
#include <cmath>
#include <limits>

#include "tests/errors_table.h"

namespace quire::test {
namespace {

using Call = AttentionCall;
using Rows = std::vector<WrongCall<Call>>;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

TEST(ErrorsAttention, Descriptor) {
    expect_wrong_descs<Call>({
        {"no heads", [](Call& c) { c.desc.num_heads = 0; }, "num_heads is 0: must be 1 to 1048576"},
        {"negative heads", [](Call& c) { c.desc.num_heads = -4; }, "num_heads is -4: must be 1 to 1048576"},
        {"negative kv heads", [](Call& c) { c.desc.num_kv_heads = -1; },
         "num_kv_heads is -1: must be 0 to 1048576"},
        {"kv heads that do not divide", [](Call& c) { c.desc.num_kv_heads = 3; },
         "num_kv_heads is 3: must divide num_heads, 4"},
        {"more kv heads than heads", [](Call& c) { c.desc.num_kv_heads = 8; },
         "num_kv_heads is 8: must divide num_heads, 4"},
        {"head_dim 0", [](Call& c) { c.desc.head_dim = 0; }, "head_dim is 0: must be 1 to 1024"},
        {"head_dim 1025", [](Call& c) { c.desc.head_dim = 1025; }, "head_dim is 1025: must be 1 to 1024"},
        {"value_head_dim 1025", [](Call& c) { c.desc.value_head_dim = 1025; },
         "value_head_dim is 1025: must be 0 to 1024"},
        {"type of codes", [](Call& c) { c.desc.type = QUIRE_INT8; },
         "type is int8: must be f32, f16 or bf16"},
        {"no type", [](Call& c) { c.desc.type = QUIRE_NONE; }, "type is none: must be f32, f16 or bf16"},
        {"unknown type", [](Call& c) { c.desc.type = quire_type(77); },
         "type is 77: must be f32, f16 or bf16"},
        {"key format of indices", [](Call& c) { c.desc.key_format.type = QUIRE_INT64; },
         "key_format.type is int64: must be f32, f16, bf16, int8, int4, q8_0, q4_0, q4_1, q5_0, q5_1, "
         "iq4_nl, int8_b16 or int4_b16"},
        {"unknown value format", [](Call& c) { c.desc.value_format.type = quire_type(-1); },
         "value_format.type is -1: must be f32, f16, bf16, int8, int4, q8_0, q4_0, q4_1, q5_0, q5_1, "
         "iq4_nl, int8_b16 or int4_b16"},
        {"quant_group 0", [](Call& c) { c.desc.key_format.quant_group = 0; },
         "key_format.quant_group is 0: must divide the head size, 16"},
        {"negative quant_group", [](Call& c) { c.desc.key_format.quant_group = -8; },
         "key_format.quant_group is -8: must divide the head size, 16"},
        {"quant_group that does not divide", [](Call& c) { c.desc.key_format.quant_group = 5; },
         "key_format.quant_group is 5: must divide the head size, 16"},
        {"quant_group of the values",
         [](Call& c) {
             c.desc.value_format = {QUIRE_INT8, 16, QUIRE_F16};
         },
         "value_format.quant_group is 16: must divide the head size, 8"},
        {"scale type bf16", [](Call& c) { c.desc.key_format.scale_type = QUIRE_BF16; },
         "key_format.scale_type is bf16: must be f32 or f16"},
        {"no scale type", [](Call& c) { c.desc.key_format.scale_type = QUIRE_NONE; },
         "key_format.scale_type is none: must be f32 or f16"},
        {"int4 of an odd head",
         [](Call& c) {
             c.desc.head_dim = 15;
             c.desc.key_format = {QUIRE_INT4, 5, QUIRE_F32};
         },
         "key_format.type is int4: needs a head size that is a multiple of 2, got 15"},
        {"blocks of half a head", [](Call& c) { c.desc.key_format.type = QUIRE_Q8_0; },
         "key_format.type is q8_0: needs a head size that is a multiple of 32, got 16"},
        {"scale NaN", [](Call& c) { c.desc.scale = NAN; }, "scale is nan: must be finite"},
        {"scale Inf", [](Call& c) { c.desc.scale = -INFINITY; }, "scale is -inf: must be finite"},
        {"negative soft cap", [](Call& c) { c.desc.logits_soft_cap = -1; },
         "logits_soft_cap is -1: must be finite and >= 0"},
        {"soft cap NaN", [](Call& c) { c.desc.logits_soft_cap = NAN; },
         "logits_soft_cap is nan: must be finite and >= 0"},
        {"soft cap Inf", [](Call& c) { c.desc.logits_soft_cap = INFINITY; },
         "logits_soft_cap is inf: must be finite and >= 0"},
        {"negative page_size", [](Call& c) { c.desc.page_size = -4; },
         "page_size is -4: must be 0 to 1073741824"},
        {"unknown precision", [](Call& c) { c.desc.precision = quire_precision(3); },
         "precision is 3: must be 0 to 2"},
        {"unknown corner", [](Call& c) { c.desc.causal_corner = 2; }, "causal_corner is 2: must be 0 to 1"},
    });
}

std::unique_ptr<Call> pages() { return std::make_unique<Call>(); }
std::unique_ptr<Call> int4_rows() { return std::make_unique<Call>(Call::Keys::int4_rows); }
std::unique_ptr<Call> dense() { return std::make_unique<Call>(Call::Keys::dense); }

TEST(ErrorsAttention, Tensors) {
    expect_wrong_args(
        pages,
        Rows{
            {"no query", [](Call& c) { c.args.query = nullptr; },
             "query is NULL: must be a tensor [n, H, D]"},
            {"query without data", [](Call& c) { c.query.data = nullptr; },
             "query has null data: must point at [4, 4, 16] elements"},
            {"query f16", [](Call& c) { c.query.type = QUIRE_F16; }, "query has type f16: must be f32"},
            {"query of an unknown type", [](Call& c) { c.query.type = quire_type(99); },
             "query has type 99: must be f32"},
            {"query of rank 2", [](Call& c) { c.query.rank = 2; }, "query has rank 2: must be 3, [n, H, D]"},
            {"query of rank -1", [](Call& c) { c.query.rank = -1; },
             "query has rank -1: must be 3, [n, H, D]"},
            {"query of a giant rank", [](Call& c) { c.query.rank = 1 << 30; },
             "query has rank 1073741824: must be 3, [n, H, D]"},
            {"query with a head too few", [](Call& c) { c.query.shape[1] = 3; },
             "query has shape [4, 3, 16]: dimension 1 of [n, H, D] must be 4"},
            {"query with a shorter head", [](Call& c) { c.query.shape[2] = 8; },
             "query has shape [4, 4, 8]: dimension 2 of [n, H, D] must be 16"},
            {"negative query tokens", [](Call& c) { c.query.shape[0] = -4; },
             "query has length -4 in dimension 0: must be >= 0"},
            {"query whose size overflows", [](Call& c) { c.query.shape[0] = int64_t(1) << 60; },
             "query has shape [1152921504606846976, 4, 16]: its size must fit in 63 bits"},
            {"query whose elements are apart", [](Call& c) { c.query.strides[2] = 2; },
             "query has stride 2 in its last dimension: must be 1"},
            {"query whose stride overflows", [](Call& c) { c.query.strides[0] = kMax; },
             "query has stride 9223372036854775807 in dimension 0: its extent must fit in 63 bits"},
            {"query with the lowest stride", [](Call& c) { c.query.strides[1] = kMin; },
             "query has stride -9223372036854775808 in dimension 1: its extent must fit in 63 bits"},
            {"query whose strides overflow together",
             [](Call& c) { c.query.strides[0] = c.query.strides[1] = int64_t(1) << 55; },
             "query has stride 36028797018963968 in dimension 1: its extent must fit in 63 bits"},
            {"no key", [](Call& c) { c.args.key = nullptr; }, "key is NULL: must be a tensor [slots, Hk, D]"},
            {"key f32", [](Call& c) { c.key.type = QUIRE_F32; }, "key has type f32: must be int8"},
            {"key with a head too many", [](Call& c) { c.key.shape[1] = 3; },
             "key has shape [20, 3, 16]: dimension 1 of [slots, Hk, D] must be 2"},
            {"key of rank 4 with pages", [](Call& c) { c.key.rank = 4; },
             "key has shape [20, 2, 16, 0]: dimension 0 of [B, T, Hk, D] must be 2"},
            {"no value", [](Call& c) { c.args.value = nullptr; },
             "value is NULL: must be a tensor [slots, Hk, Dv]"},
            {"value with fewer slots", [](Call& c) { c.value.shape[0] = 19; },
             "value has shape [19, 2, 8]: dimension 0 of [slots, Hk, Dv] must be 20"},
            {"value of the key's head size", [](Call& c) { c.value.shape[2] = 16; },
             "value has shape [20, 2, 16]: dimension 2 of [slots, Hk, Dv] must be 8"},
            {"scales missing", [](Call& c) { c.args.key_scale = nullptr; },
             "key_scale is NULL: must be a tensor [slots, Hk, D / quant_group]"},
            {"scales f16", [](Call& c) { c.key_scale.type = QUIRE_F16; },
             "key_scale has type f16: must be f32"},
            {"scales of other groups", [](Call& c) { c.key_scale.shape[2] = 4; },
             "key_scale has shape [20, 2, 4]: dimension 2 of [slots, Hk, D / quant_group] must be 2"},
            {"scales given", [](Call& c) { c.args.value_scale = &c.key_scale; },
             "value_scale is given: must be NULL where the format is f16"},
            {"no output", [](Call& c) { c.args.output = nullptr; },
             "output is NULL: must be a tensor [n, H, Dv]"},
            {"output with a token too few", [](Call& c) { c.output.shape[0] = 3; },
             "output has shape [3, 4, 8]: dimension 0 of [n, H, Dv] must be 4"},
            {"output f16", [](Call& c) { c.output.type = QUIRE_F16; }, "output has type f16: must be f32"},
            {"output without data", [](Call& c) { c.output.data = nullptr; },
             "output has null data: must point at [4, 4, 8] elements"},
            {"output tokens on each other", [](Call& c) { c.output.strides[0] = 0; },
             "output has stride 0 in dimension 0: must keep its elements apart, it is written"},
            {"lse f16", [](Call& c) { c.lse.type = QUIRE_F16; }, "lse has type f16: must be f32"},
            {"lse of rank 3", [](Call& c) { c.lse.rank = 3; }, "lse has rank 3: must be 2, [n, H]"},
            {"lse heads on each other", [](Call& c) { c.lse.strides[1] = 0; },
             "lse has stride 0 in dimension 1: must keep its elements apart, it is written"},
            {"sinks too few", [](Call& c) { c.sinks.shape[0] = 2; },
             "sinks has shape [2]: dimension 0 of [H] must be 4"},
            {"sinks bf16", [](Call& c) { c.sinks.type = QUIRE_BF16; }, "sinks has type bf16: must be f32"},
        });
}

TEST(ErrorsAttention, Sequences) {
    expect_wrong_args(
        pages,
        Rows{
            {"seqstarts int32", [](Call& c) { c.seqstarts.type = QUIRE_INT32; },
             "seqstarts has type int32: must be int64"},
            {"seqstarts of rank 2", [](Call& c) { c.seqstarts.rank = 2; },
             "seqstarts has rank 2: must be 1, [B + 1]"},
            {"seqstarts without data", [](Call& c) { c.seqstarts.data = nullptr; },
             "seqstarts has null data: must point at [3] elements"},
            {"no sequence starts", [](Call& c) { c.seqstarts.shape[0] = 0; },
             "seqstarts has shape [0]: must be [B + 1]"},
            {"seqstarts not from 0", [](Call& c) { entry(c.seqstarts, 0) = 1; },
             "seqstarts[0] is 1: must be 0"},
            {"seqstarts not monotone", [](Call& c) { entry(c.seqstarts, 1) = 5; },
             "seqstarts[2] is 4: must be >= seqstarts[1], which is 5"},
            {"seqstarts not to n", [](Call& c) { entry(c.seqstarts, 2) = 3; },
             "seqstarts[2] is 3: must be n, 4"},
            {"seqstarts past n", [](Call& c) { entry(c.seqstarts, 2) = kMax; },
             "seqstarts[2] is 9223372036854775807: must be n, 4"},
            {"no kvstarts", [](Call& c) { c.args.kvstarts = nullptr; },
             "kvstarts is NULL: must be given for 2 sequences"},
            {"kvstarts of three sequences", [](Call& c) { c.kvstarts.shape[0] = 4; },
             "kvstarts has shape [4]: dimension 0 of [B + 1] must be 3"},
            {"kvstarts not from 0", [](Call& c) { entry(c.kvstarts, 0) = -1; },
             "kvstarts[0] is -1: must be 0"},
            {"kvstarts not monotone", [](Call& c) { entry(c.kvstarts, 1) = 12; },
             "kvstarts[2] is 11: must be >= kvstarts[1], which is 12"},
            {"negative kvstarts", [](Call& c) { entry(c.kvstarts, 1) = kMin; },
             "kvstarts[1] is -9223372036854775808: must be >= kvstarts[0], which is 0"},
            {"decoding_batches -1", [](Call& c) { c.args.decoding_batches = -1; },
             "decoding_batches is -1: must be 0 to 2"},
            {"decoding_batches 3", [](Call& c) { c.args.decoding_batches = 3; },
             "decoding_batches is 3: must be 0 to 2"},
            {"dropout of everything", [](Call& c) { c.args.dropout_rate = 1; },
             "dropout_rate is 1: must be at least 0 and less than 1"},
            {"dropout NaN", [](Call& c) { c.args.dropout_rate = std::nanf(""); },
             "dropout_rate is nan: must be at least 0 and less than 1"},
            {"dropout_step of 33 bits", [](Call& c) { c.args.dropout_step = int64_t(1) << 32; },
             "dropout_step is 4294967296: must be 0 to 4294967295"},
            {"query_positions far off", [](Call& c) { entry(c.query_positions, 1) = kMax; },
             "query_positions[1] is 9223372036854775807: must be -1099511627776 to 1099511627776"},
            {"query_positions of one sequence", [](Call& c) { c.query_positions.shape[0] = 1; },
             "query_positions has shape [1]: dimension 0 of [B] must be 2"},
            {"key_begin negative", [](Call& c) { entry(c.key_begin, 0) = -1; },
             "key_begin[0] is -1: must be 0 to 5"},
            {"key_end past T", [](Call& c) { entry(c.key_end, 1) = 7; }, "key_end[1] is 7: must be 0 to 6"},
            {"key_end f32", [](Call& c) { c.key_end.type = QUIRE_F32; },
             "key_end has type f32: must be int64"},
        });
}

TEST(ErrorsAttention, Pages) {
    expect_wrong_args(
        pages,
        Rows{
            {"no page table", [](Call& c) { c.args.cachestarts = nullptr; },
             "cachestarts is NULL: must be given with a page_size"},
            {"page table of rank 1", [](Call& c) { c.cachestarts.rank = 1; },
             "cachestarts has rank 1: must be 2, [B, MaxP]"},
            {"page table of one sequence", [](Call& c) { c.cachestarts.shape[0] = 1; },
             "cachestarts has shape [1, 3]: dimension 0 of [B, MaxP] must be 2"},
            {"page table int32", [](Call& c) { c.cachestarts.type = QUIRE_INT32; },
             "cachestarts has type int32: must be int64"},
            {"page table too narrow", [](Call& c) { c.cachestarts.shape[1] = 1; },
             "cachestarts has 1 pages a sequence: sequence 0 needs 2 for 5 positions"},
            {"page table without pages", [](Call& c) { c.cachestarts.shape[1] = 0; },
             "cachestarts has 0 pages a sequence: sequence 0 needs 2 for 5 positions"},
            {"sequence longer than its pages", [](Call& c) { entry(c.kvstarts, 2) = 5 + 13; },
             "cachestarts has 3 pages a sequence: sequence 1 needs 4 for 13 positions"},
            {"page negative", [](Call& c) { entry(c.cachestarts, 0) = -1; },
             "cachestarts[0, 0] is -1: must be 0 to 16, so that its 4 rows lie in the cache's 20 slots"},
            {"page past the end", [](Call& c) { entry(c.cachestarts, 3) = 17; },
             "cachestarts[1, 0] is 17: must be 0 to 16, so that its 4 rows lie in the cache's 20 slots"},
            {"last page past the end by its part in use", [](Call& c) { entry(c.cachestarts, 4) = 19; },
             "cachestarts[1, 1] is 19: must be 0 to 18, so that its 2 rows lie in the cache's 20 slots"},
            {"page INT64_MAX", [](Call& c) { entry(c.cachestarts, 1) = kMax; },
             "cachestarts[0, 1] is 9223372036854775807: must be 0 to 19, so that its 1 rows lie in the "
             "cache's 20 "
             "slots"},
            {"page INT64_MIN", [](Call& c) { entry(c.cachestarts, 1) = kMin; },
             "cachestarts[0, 1] is -9223372036854775808: must be 0 to 19, so that its 1 rows lie in the "
             "cache's 20 "
             "slots"},
            {"page that is used after all", [](Call& c) { entry(c.kvstarts, 2) = 5 + 9; },
             "cachestarts[1, 2] is -1: must be 0 to 19, so that its 1 rows lie in the cache's 20 slots"},
            {"cache smaller than a page",
             [](Call& c) {
                 for (quire_tensor* t : {&c.key, &c.value, &c.key_scale}) t->shape[0] = 3;
             },
             "cachestarts[0, 0] is 0: its 4 rows must lie in the cache's 3 slots"},
            {"empty cache",
             [](Call& c) {
                 for (quire_tensor* t : {&c.key, &c.value, &c.key_scale}) t->shape[0] = 0;
             },
             "cachestarts[0, 0] is 0: its 4 rows must lie in the cache's 0 slots"},
        });
}

TEST(ErrorsAttention, Masks) {
    expect_wrong_args(
        pages,
        Rows{
            {"mask int32", [](Call& c) { c.attn_mask.type = QUIRE_INT32; },
             "attn_mask has type int32: must be f32, f16, bf16 or bool"},
            {"mask of rank 1", [](Call& c) { c.attn_mask.rank = 1; },
             "attn_mask has rank 1: must be 2, 3 or 4"},
            {"mask of rank 5", [](Call& c) { c.attn_mask.rank = 5; },
             "attn_mask has rank 5: must be 2, 3 or 4"},
            {"mask of a giant rank", [](Call& c) { c.attn_mask.rank = 1 << 30; },
             "attn_mask has rank 1073741824: must be 2, 3 or 4"},
            {"mask of rank -1", [](Call& c) { c.attn_mask.rank = -1; },
             "attn_mask has rank -1: must be 2, 3 or 4"},
            {"mask too narrow", [](Call& c) { c.attn_mask.shape[2] = 10; },
             "attn_mask has 10 columns: must have at least kvstarts[B], 11"},
            {"mask with too few rows", [](Call& c) { c.attn_mask.shape[1] = 3; },
             "attn_mask has shape [4, 3, 12]: dimension 1 of [H or 1, n, >= kvstarts[B]] must be 4"},
            {"mask of kv heads", [](Call& c) { c.attn_mask.shape[0] = 2; },
             "attn_mask has shape [2, 4, 12]: its first dimension must be 1 or num_heads, 4"},
            {"mask without data", [](Call& c) { c.attn_mask.data = nullptr; },
             "attn_mask has null data: must point at [4, 4, 12] elements"},
            {"mask whose stride overflows", [](Call& c) { c.attn_mask.strides[0] = kMax / 2; },
             "attn_mask has stride 4611686018427387903 in dimension 0: its extent must fit in 63 bits"},
            {"tree mask int32", [](Call& c) { c.tree_mask.type = QUIRE_INT32; },
             "tree_mask has type int32: must be int64"},
            {"tree mask of three tokens", [](Call& c) { c.tree_mask.shape[0] = 3; },
             "tree_mask has shape [3, 1]: dimension 0 of [n, words] must be 4"},
            {"tree mask without words", [](Call& c) { c.tree_mask.shape[1] = 0; },
             "tree_mask has 0 words a token: sequence 0 has 1 new keys and needs 1"},
            {"slopes of 3 heads", [](Call& c) { c.attn_mask_slopes.shape[0] = 3; },
             "attn_mask_slopes has shape [3]: dimension 0 of [H] must be 4"},
            {"slopes f16", [](Call& c) { c.attn_mask_slopes.type = QUIRE_F16; },
             "attn_mask_slopes has type f16: must be f32"},
            {"slopes without a mask", [](Call& c) { c.args.attn_mask = nullptr; },
             "attn_mask_slopes is given: must be NULL without an attn_mask of numbers"},
            {"slopes of a bool mask", [](Call& c) { c.attn_mask.type = QUIRE_BOOL; },
             "attn_mask_slopes is given: must be NULL without an attn_mask of numbers"},
        });
}

TEST(ErrorsAttention, Int4Rows) {
    expect_wrong_args(
        int4_rows,
        Rows{
            {"odd stride of rows", [](Call& c) { c.key.strides[0] = 33; },
             "key has stride 33 in dimension 0: must be a multiple of 2 for int4"},
            {"odd stride of heads", [](Call& c) { c.value.strides[1] = 9; },
             "value has stride 9 in dimension 1: must be a multiple of 2 for int4"},
            {"stride 2 of values", [](Call& c) { c.value.strides[2] = 2; },
             "value has stride 2 in its last dimension: must be 1"},
            {"half the head, as bytes", [](Call& c) { c.key.shape[2] = 8; },
             "key has shape [20, 2, 8]: dimension 2 of [slots, Hk, D] must be 16"},
            {"value scales missing", [](Call& c) { c.args.value_scale = nullptr; },
             "value_scale is NULL: must be a tensor [slots, Hk, D / quant_group]"},
            {"offset negative", [](Call& c) { entry(c.cachestarts, 0) = -1; },
             "cachestarts[0] is -1: must be 0 to 15, so that its 5 rows lie in the cache's 20 slots"},
            {"offset past the end", [](Call& c) { entry(c.cachestarts, 1) = 15; },
             "cachestarts[1] is 15: must be 0 to 14, so that its 6 rows lie in the cache's 20 slots"},
            {"offset INT64_MAX", [](Call& c) { entry(c.cachestarts, 1) = kMax; },
             "cachestarts[1] is 9223372036854775807: must be 0 to 14, so that its 6 rows lie in the cache's "
             "20 slots"},
            {"cache too small for a sequence", [](Call& c) { entry(c.kvstarts, 2) = 5 + 21; },
             "cachestarts[1] is 2: its 21 rows must lie in the cache's 20 slots"},
            {"longer than memory", [](Call& c) { entry(c.kvstarts, 2) = kMax; },
             "cachestarts[1] is 2: its 9223372036854775802 rows must lie in the cache's 20 slots"},
            {"a page table", [](Call& c) { c.cachestarts.rank = 2; },
             "cachestarts has rank 2: must be 1, [B]"},
            {"offsets, but dense lengths", [](Call& c) { c.args.kvstarts = nullptr; },
             "kvstarts is NULL: must be given for 2 sequences"},
            {"dense rows too few",
             [](Call& c) {
                 c.args.cachestarts = nullptr;
                 entry(c.kvstarts, 2) = 21;
             },
             "kvstarts[2] is 21: must be at most the rows of key, 20"},
        });
}

TEST(ErrorsAttention, Dense) {
    static const int64_t kIndexShape[] = {3};
    expect_wrong_args(
        dense,
        Rows{
            {"seqstarts beside [B, S, H, D]",
             [](Call& c) {
                 c.seqstarts = quire_tensor_of(nullptr, QUIRE_INT64, 1, kIndexShape);
                 c.args.seqstarts = &c.seqstarts;
             },
             "seqstarts is given: must be NULL with a query [B, S, H, D]"},
            {"kvstarts beside [B, T, Hk, D]",
             [](Call& c) {
                 c.kvstarts = quire_tensor_of(nullptr, QUIRE_INT64, 1, kIndexShape);
                 c.args.kvstarts = &c.kvstarts;
             },
             "kvstarts is given: must be NULL with a key [B, T, Hk, D]"},
            {"cachestarts beside [B, T, Hk, D]",
             [](Call& c) {
                 c.cachestarts = quire_tensor_of(nullptr, QUIRE_INT64, 1, kIndexShape);
                 c.args.cachestarts = &c.cachestarts;
             },
             "cachestarts is given: must be NULL with a key [B, T, Hk, D]"},
            {"keys of another batch", [](Call& c) { c.key.shape[0] = 1; },
             "key has shape [1, 6, 2, 16]: dimension 0 of [B, T, Hk, D] must be 2"},
            {"values of another length", [](Call& c) { c.value.shape[1] = 5; },
             "value has shape [2, 5, 2, 8]: dimension 1 of [B, T, Hk, Dv] must be 6"},
            {"output of packed tokens", [](Call& c) { c.output.rank = 3; },
             "output has rank 3: must be 4, [B, S, H, Dv]"},
            {"lse of packed tokens", [](Call& c) { c.lse.rank = 2; }, "lse has rank 2: must be 3, [B, S, H]"},
            {"mask of another length", [](Call& c) { c.attn_mask.shape[3] = 5; },
             "attn_mask has shape [2, 4, 3, 5]: must be [2 or 1, 4 or 1, 3 or 1, 6 or 1]"},
            {"mask of another batch", [](Call& c) { c.attn_mask.shape[0] = 3; },
             "attn_mask has shape [3, 4, 3, 6]: must be [2 or 1, 4 or 1, 3 or 1, 6 or 1]"},
        });
}

}  // namespace
}  // namespace quire::test
