// Wrong calls of PMX KeyValueCache, both forms.
#include <limits>

#include "tests/errors_table.h"
#include "tests/pmx_calls.h"

namespace quire::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

template <typename Call>
void expect_wrong_attributes() {
    expect_wrong_descs<Call>({
        {"no kv heads", [](Call& c) { c.desc.num_kv_heads = 0; }, "num_kv_heads is 0: must be 1 to 1048576"},
        {"head_dim 0", [](Call& c) { c.desc.head_dim = 0; }, "head_dim is 0: must be 1 to 1024"},
        {"num_repeat 0", [](Call& c) { c.desc.num_repeat = 0; }, "num_repeat is 0: must be 1 to 524288"},
        {"num_repeat that overflows", [](Call& c) { c.desc.num_repeat = 1 << 30; },
         "num_repeat is 1073741824: must be 1 to 524288"},
        {"no layers", [](Call& c) { c.desc.num_layer = 0; }, "num_layer is 0: must be 1 to 1048576"},
        {"layer_idx negative", [](Call& c) { c.desc.layer_idx = -1; }, "layer_idx is -1: must be 0 to 1"},
        {"quant_bit -8", [](Call& c) { c.desc.quant_bit = -8; }, "quant_bit is -8: must be 0, 8 or 4"},
        {"quant_group 3", [](Call& c) { c.desc.quant_group = 3; },
         "quant_group is 3: must divide head_dim, 16"},
        {"type int4", [](Call& c) { c.desc.type = QUIRE_INT4; }, "type is int4: must be f32 or f16"},
        {"cache int4 of int8", [](Call& c) { c.desc.cache_type = QUIRE_INT4; },
         "cache_type is int4: must be int8 where quant_bit is 8"},
        {"scale bf16", [](Call& c) { c.desc.scale_type = QUIRE_BF16; },
         "scale_type is bf16: must be f32 or f16"},
    });
}

TEST(ErrorsPmxKeyValueCache, DynamicDescriptor) {
    using Call = PmxDynamicKeyValueCacheCall;
    expect_wrong_attributes<Call>();
    expect_wrong_descs<Call>({
        {"cache_mode 2", [](Call& c) { c.desc.cache_mode = 2; }, "cache_mode is 2: must be 0 to 1"},
        {"cache_layout 4", [](Call& c) { c.desc.cache_layout = 4; }, "cache_layout is 4: must be 0 to 3"},
        {"page_size 0", [](Call& c) { c.desc.page_size = 0; }, "page_size is 0: must be 1 to 1073741824"},
    });
}

TEST(ErrorsPmxKeyValueCache, Dynamic) {
    using Call = PmxDynamicKeyValueCacheCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no struct size", [](Call& c) { c.args.struct_size = 0; },
             "args.struct_size is 0: must be sizeof the struct, 104"},
            {"no current_key", [](Call& c) { c.args.current_key = nullptr; },
             "current_key is NULL: must be a tensor [n, Hk, D]"},
            {"current_key f16", [](Call& c) { c.current_key.type = QUIRE_F16; },
             "current_key has type f16: must be f32"},
            {"current_value of fewer tokens", [](Call& c) { c.current_value.shape[0] = 3; },
             "current_value has shape [3, 2, 16]: dimension 0 of [n, Hk, D] must be 4"},
            {"no seqstarts", [](Call& c) { c.args.seqstarts = nullptr; },
             "seqstarts is NULL: must be a tensor [B + 1]"},
            {"seqstarts not from 0", [](Call& c) { entry(c.seqstarts, 0) = 1; },
             "seqstarts[0] is 1: must be 0"},
            {"no kvstarts", [](Call& c) { c.args.kvstarts = nullptr; },
             "kvstarts is NULL: must be a tensor [B + 1]"},
            {"kvstarts of rank 0", [](Call& c) { c.kvstarts.rank = 0; },
             "kvstarts has rank 0: must be 1, [B + 1]"},
            {"kvstarts shorter than start_pos says", [](Call& c) { entry(c.kvstarts, 1) = 4; },
             "kvstarts[1] - kvstarts[0] is 4: must be start_pos[0] + its new tokens, 5"},
            {"kvstarts past the pages", [](Call& c) { entry(c.kvstarts, 2) = kMax; },
             "cachestarts has 3 pages a sequence: sequence 1 needs 2305843009213693951 for "
             "9223372036854775802 "
             "positions"},
            {"no cachestarts", [](Call& c) { c.args.cachestarts = nullptr; },
             "cachestarts is NULL: must be a tensor [B, MaxP]"},
            {"page past the end", [](Call& c) { entry(c.cachestarts, 3) = 17; },
             "cachestarts[1, 0] is 17: must be 0 to 16, so that its 4 rows lie in the cache's 20 slots"},
            {"no start_pos", [](Call& c) { c.args.start_pos = nullptr; },
             "start_pos is NULL: must be a tensor [B]"},
            {"start_pos of all", [](Call& c) { c.start_pos.rank = 0; },
             "start_pos has rank 0: must be 1, [B]"},
            {"start_pos negative", [](Call& c) { entry(c.start_pos, 1) = -3; },
             "start_pos[1] is -3: must be >= 0"},
            {"no cache", [](Call& c) { c.args.cache = nullptr; },
             "cache is NULL: must be a tensor (MaxT, L, 2, Hk, D)"},
            {"no scale", [](Call& c) { c.args.scale = nullptr; },
             "scale is NULL: must be a tensor (MaxT, L, 2, Hk, D / quant_group)"},
            {"no key", [](Call& c) { c.args.key = nullptr; },
             "key is NULL: must be a tensor [kvstarts[B], Hk * num_repeat, D]"},
            {"key not repeated", [](Call& c) { c.key.shape[1] = 2; },
             "key has shape [11, 2, 16]: dimension 1 of [kvstarts[B], Hk * num_repeat, D] must be 4"},
            {"value of new tokens only", [](Call& c) { c.value.shape[0] = 4; },
             "value has shape [4, 4, 16]: dimension 0 of [kvstarts[B], Hk * num_repeat, D] must be 11"},
            {"value repeated by strides", [](Call& c) { c.value.strides[1] = 0; },
             "value has stride 0 in dimension 1: must keep its elements apart, it is written"},
            {"key in columns", [](Call& c) { c.key.strides[2] = 4; },
             "key has stride 4 in its last dimension: must be 1"},
        });
}

// A sequence without new tokens is read back too, and its pages are checked.
std::unique_ptr<PmxDynamicKeyValueCacheCall> without_new_tokens() {
    auto call = std::make_unique<PmxDynamicKeyValueCacheCall>();
    entry(call->seqstarts, 1) = 0;
    entry(call->seqstarts, 2) = 4;
    entry(call->start_pos, 0) = 5;
    entry(call->start_pos, 1) = 2;
    return call;
}

TEST(ErrorsPmxKeyValueCache, DynamicWithoutNewTokens) {
    using Call = PmxDynamicKeyValueCacheCall;
    expect_wrong_args(
        without_new_tokens,
        std::vector<WrongCall<Call>>{
            {"page past the end", [](Call& c) { entry(c.cachestarts, 1) = 20; },
             "cachestarts[0, 1] is 20: must be 0 to 19, so that its 1 rows lie in the cache's 20 slots"},
            {"start_pos that does not agree", [](Call& c) { entry(c.start_pos, 0) = kMax; },
             "kvstarts[1] - kvstarts[0] is 5: must be start_pos[0] + its new tokens, 9223372036854775807"},
        });
}

TEST(ErrorsPmxKeyValueCache, StaticDescriptor) {
    using Call = PmxKeyValueCacheCall;
    expect_wrong_attributes<Call>();
    expect_wrong_descs<Call>({
        {"cache_layout 2", [](Call& c) { c.desc.cache_layout = 2; }, "cache_layout is 2: must be 0 to 1"},
    });
}

TEST(ErrorsPmxKeyValueCache, Static) {
    using Call = PmxKeyValueCacheCall;
    expect_wrong_args(
        [] { return std::make_unique<Call>(); },
        std::vector<WrongCall<Call>>{
            {"no struct size", [](Call& c) { c.args.struct_size = 0; },
             "args.struct_size is 0: must be sizeof the struct, 64"},
            {"no current_key", [](Call& c) { c.args.current_key = nullptr; },
             "current_key is NULL: must be a tensor [B, S, Hk, D]"},
            {"current_key of rows", [](Call& c) { c.current_key.rank = 3; },
             "current_key has rank 3: must be 4, [B, S, Hk, D]"},
            {"current_value of one sequence", [](Call& c) { c.current_value.shape[0] = 1; },
             "current_value has shape [1, 3, 2, 16]: dimension 0 of [B, S, Hk, D] must be 2"},
            {"more sequences than the cache",
             [](Call& c) { c.current_key.shape[0] = c.current_value.shape[0] = 4; },
             "cache has MaxB 3: must be at least the sequences of current_key, 4"},
            {"no start_pos", [](Call& c) { c.args.start_pos = nullptr; },
             "start_pos is NULL: must be a scalar, [] or [1]"},
            {"start_pos of no sequence", [](Call& c) { c.start_pos.shape[0] = 0; },
             "start_pos has shape [0]: dimension 0 of [1] must be 1"},
            {"start_pos past the cache", [](Call& c) { entry(c.start_pos, 0) = 8; },
             "start_pos is 8: with 3 new tokens must be at most MaxS of cache, 10"},
            {"start_pos INT64_MIN",
             [](Call& c) { entry(c.start_pos, 0) = std::numeric_limits<int64_t>::min(); },
             "start_pos is -9223372036854775808: must be >= 0"},
            {"cache in another layout", [](Call& c) { std::swap(c.cache.shape[3], c.cache.shape[4]); },
             "cache has shape [3, 2, 2, 2, 10, 16]: dimension 4 of (MaxB, L, 2, MaxS, Hk, D) must be 2"},
            {"no key", [](Call& c) { c.args.key = nullptr; },
             "key is NULL: must be a tensor [B, start_pos + S, Hk * num_repeat, D]"},
            {"key of new tokens only", [](Call& c) { c.key.shape[1] = 3; },
             "key has shape [2, 3, 4, 16]: dimension 1 of [B, start_pos + S, Hk * num_repeat, D] must be 7"},
            {"value f16", [](Call& c) { c.value.type = QUIRE_F16; }, "value has type f16: must be f32"},
            {"value without data", [](Call& c) { c.value.data = nullptr; },
             "value has null data: must point at [2, 7, 4, 16] elements"},
        });
}

}  // namespace
}  // namespace quire::test
