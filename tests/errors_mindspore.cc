// Wrong calls of quire_mindspore_multi_head_attention_plan and ..._attention.
#include <cmath>
#include <limits>

#include "tests/errors_table.h"
#include "tests/mindspore_call.h"

namespace quire::test {
namespace {

using C = MindsporeCall;
using Form = MindsporeCall::Form;
using Rows = std::vector<WrongCall<C>>;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(ErrorsMindspore, Layer) {
    expect_wrong_descs<C>({
        {"no struct size", [](C& c) { c.desc.struct_size = 0; },
         "desc.struct_size is 0: must be sizeof the struct, 128"},
        {"no sequences", [](C& c) { c.desc.batch_size = 0; }, "batch_size is 0: must be 1 to 1048576"},
        {"no query tokens", [](C& c) { c.desc.src_seq_length = 0; },
         "src_seq_length is 0: must be 1 to 1048576"},
        {"negative key tokens", [](C& c) { c.desc.tgt_seq_length = -1; },
         "tgt_seq_length is -1: must be 1 to 1048576"},
        {"no hidden_size", [](C& c) { c.desc.hidden_size = 0; }, "hidden_size is 0: must be 1 to 1048576"},
        {"no heads", [](C& c) { c.desc.num_heads = 0; }, "num_heads is 0: must be 1 to 1048576"},
        {"heads that do not divide", [](C& c) { c.desc.num_heads = 3; },
         "num_heads is 3: must divide hidden_size, 8"},
        {"a head too large", [](C& c) { c.desc.hidden_size = 2050; },
         "num_heads is 2: must leave heads of at most 1024 of hidden_size, 2050"},
        {"too large altogether",
         [](C& c) {
             c.desc.batch_size = c.desc.src_seq_length = c.desc.hidden_size = 1 << 20;
             c.desc.num_heads = 1 << 12;
         },
         "batch_size is 1048576: with 1048576 tokens of hidden_size 1048576 there are more than 2^42 "
         "elements"},
        {"hidden dropout of everything", [](C& c) { c.desc.hidden_dropout_rate = 1; },
         "hidden_dropout_rate is 1: must be at least 0 and less than 1"},
        {"hidden dropout NaN", [](C& c) { c.desc.hidden_dropout_rate = NAN; },
         "hidden_dropout_rate is nan: must be at least 0 and less than 1"},
        {"attention dropout negative", [](C& c) { c.desc.attention_dropout_rate = -0.25f; },
         "attention_dropout_rate is -0.25: must be at least 0 and less than 1"},
        {"compute_dtype bf16", [](C& c) { c.desc.compute_dtype = QUIRE_BF16; },
         "compute_dtype is bf16: must be f32 or f16"},
        {"softmax_compute_type int8", [](C& c) { c.desc.softmax_compute_type = QUIRE_INT8; },
         "softmax_compute_type is int8: must be f32 or f16"},
        {"no param_init_type", [](C& c) { c.desc.param_init_type = QUIRE_NONE; },
         "param_init_type is none: must be f32 or f16"},
        {"use_past 2", [](C& c) { c.desc.use_past = 2; }, "use_past is 2: must be 0 to 1"},
        {"a past of another length", [](C& c) { c.desc.use_past = 1; },
         "tgt_seq_length is 5: must be src_seq_length, 3, where use_past is 1"},
        {"parallel_config -1", [](C& c) { c.desc.parallel_config = -1; },
         "parallel_config is -1: must be 0 to 1024"},
        {"precision 7", [](C& c) { c.desc.precision = quire_precision(7); },
         "precision is 7: must be 0 to 2"},
        {"no weight", [](C& c) { c.desc.dense1_weight = nullptr; },
         "dense1_weight is NULL: must be a tensor [hidden_size (out), hidden_size (in)]"},
        {"weight of another type", [](C& c) { c.weights[1].type = QUIRE_F16; },
         "dense2_weight has type f16: must be f32"},
        {"weight of another size", [](C& c) { c.weights[2].shape[1] = 4; },
         "dense3_weight has shape [8, 4]: dimension 1 of [hidden_size (out), hidden_size (in)] must be 8"},
        {"weight without data", [](C& c) { c.weights[3].data = nullptr; },
         "projection_weight has null data: must point at [8, 8] elements"},
        {"no bias", [](C& c) { c.desc.projection_bias = nullptr; },
         "projection_bias is NULL: must be a tensor [hidden_size]"},
        {"bias of rank 2", [](C& c) { c.biases[0].rank = 2; },
         "dense1_bias has rank 2: must be 1, [hidden_size]"},
    });
}

template <Form form>
std::unique_ptr<C> make() {
    return std::make_unique<C>(form);
}

TEST(ErrorsMindspore, Tensors) {
    expect_wrong_args(
        make<Form::cross>,
        Rows{
            {"no struct size", [](C& c) { c.args.struct_size = 4; },
             "args.struct_size is 4: must be sizeof the struct, 112"},
            {"no query", [](C& c) { c.args.query_tensor = nullptr; },
             "query_tensor is NULL: must be a tensor [2, 3, 8] or [6, 8]"},
            {"query bf16", [](C& c) { c.query.type = QUIRE_BF16; },
             "query_tensor has type bf16: must be f32 or f16"},
            {"query of rank 1", [](C& c) { c.query.rank = 1; }, "query_tensor has rank 1: must be 2 or 3"},
            {"query of another batch", [](C& c) { c.query.shape[0] = 1; },
             "query_tensor has shape [1, 3, 8]: dimension 0 of [B, tokens, hidden_size] must be 2"},
            {"query of another length", [](C& c) { c.query.shape[1] = 2; },
             "query_tensor has shape [2, 2, 8]: dimension 1 of [B, tokens, hidden_size] must be 3"},
            {"query in columns", [](C& c) { c.query.strides[2] = 2; },
             "query_tensor has stride 2 in its last dimension: must be 1"},
            {"no key", [](C& c) { c.args.key_tensor = nullptr; },
             "key_tensor is NULL: must be a tensor [2, 5, 8] or [10, 8]"},
            {"key of another size", [](C& c) { c.key.shape[2] = 7; },
             "key_tensor has shape [2, 5, 7]: dimension 2 of [B, tokens, hidden_size] must be 8"},
            {"key without data", [](C& c) { c.key.data = nullptr; },
             "key_tensor has null data: must point at [2, 5, 8] elements"},
            {"key whose stride overflows", [](C& c) { c.key.strides[0] = kMax; },
             "key_tensor has stride 9223372036854775807 in dimension 0: its extent must fit in 63 bits"},
            {"flat value of fewer rows", [](C& c) { c.value.shape[0] = 9; },
             "value_tensor has shape [9, 8]: dimension 0 of [B * tokens, hidden_size] must be 10"},
            {"value int8", [](C& c) { c.value.type = QUIRE_INT8; },
             "value_tensor has type int8: must be f32 or f16"},
            {"mask bool", [](C& c) { c.mask.type = QUIRE_BOOL; },
             "attention_mask has type bool: must be f32 or f16"},
            {"mask of rank 2", [](C& c) { c.mask.rank = 2; }, "attention_mask has rank 2: must be 3 or 4"},
            {"mask of fewer keys", [](C& c) { c.mask.shape[2] = 4; },
             "attention_mask has shape [2, 3, 4]: dimension 2 of [B, S, T] must be 5"},
            {"mask of other heads",
             [](C& c) {
                 c.mask.rank = 4;
                 for (const int i : {3, 2, 1}) c.mask.shape[i] = c.mask.shape[i - 1];
                 c.mask.shape[1] = 3;
             },
             "attention_mask has shape [2, 3, 3, 5]: dimension 1 of [B, H or 1, S, T] must be 2 or 1"},
            {"key_past without use_past", [](C& c) { c.args.key_past = &c.key_past; },
             "key_past is given: must be NULL where use_past is 0"},
            {"value_past without use_past", [](C& c) { c.args.value_past = &c.value_past; },
             "value_past is given: must be NULL where use_past is 0"},
            {"batch_valid_length without use_past", [](C& c) { c.args.batch_valid_length = &c.valid_length; },
             "batch_valid_length is given: must be NULL where use_past is 0"},
            {"is_first_iteration 2", [](C& c) { c.args.is_first_iteration = 2; },
             "is_first_iteration is 2: must be 0 to 1"},
            {"training -1", [](C& c) { c.args.training = -1; }, "training is -1: must be 0 to 1"},
            {"step -1", [](C& c) { c.args.dropout_step = -1; },
             "dropout_step is -1: must be 0 to 4294967295"},
            {"step past 32 bits", [](C& c) { c.args.dropout_step = int64_t(1) << 32; },
             "dropout_step is 4294967296: must be 0 to 4294967295"},
            {"no output", [](C& c) { c.args.output = nullptr; },
             "output is NULL: must be a tensor [2, 3, 8] or [6, 8]"},
            {"output of another type", [](C& c) { c.output.type = QUIRE_F16; },
             "output has type f16: must be f32"},
            {"output rows on each other", [](C& c) { c.output.strides[1] = 0; },
             "output has stride 0 in dimension 1: must keep its elements apart, it is written"},
            {"keys by rows", [](C& c) { std::swap(c.key_present.shape[2], c.key_present.shape[3]); },
             "layer_present_0 has shape [2, 2, 5, 4]: dimension 2 of [B, H, D, T] must be 4"},
            {"present f16", [](C& c) { c.key_present.type = QUIRE_F16; },
             "layer_present_0 has type f16: must be f32"},
            {"value present of rank 3", [](C& c) { c.value_present.rank = 3; },
             "layer_present_1 has rank 3: must be 4, [B, H, T, D]"},
            {"value present heads on each other", [](C& c) { c.value_present.strides[1] = 0; },
             "layer_present_1 has stride 0 in dimension 1: must keep its elements apart, it is written"},
        });
}

TEST(ErrorsMindspore, Past) {
    expect_wrong_args(
        make<Form::first>,
        Rows{
            {"no batch_valid_length", [](C& c) { c.args.batch_valid_length = nullptr; },
             "batch_valid_length is NULL: must be a tensor [B]"},
            {"more than there are", [](C& c) { static_cast<int32_t*>(c.valid_length.data)[1] = 5; },
             "batch_valid_length[1] is 5: must be 0 to 4, tgt_seq_length is 4"},
            {"a past that is not read, of another type", [](C& c) { c.key_past.type = QUIRE_F32; },
             "key_past has type f32: must be f16"},
            {"query of one token", [](C& c) { c.query.shape[1] = 1; },
             "query_tensor has shape [2, 1, 8]: dimension 1 of [B, tokens, hidden_size] must be 4"},
        });
    expect_wrong_args(
        make<Form::next>,
        Rows{
            {"no key_past", [](C& c) { c.args.key_past = nullptr; },
             "key_past is NULL: must be a tensor [B, H, D, T]"},
            {"key_past f32", [](C& c) { c.key_past.type = QUIRE_F32; }, "key_past has type f32: must be f16"},
            {"no value_past", [](C& c) { c.args.value_past = nullptr; },
             "value_past is NULL: must be a tensor [B, H, T, D]"},
            {"value_past of rank 3", [](C& c) { c.value_past.rank = 3; },
             "value_past has rank 3: must be 4, [B, H, T, D]"},
            {"batch_valid_length int64", [](C& c) { c.valid_length.type = QUIRE_INT64; },
             "batch_valid_length has type int64: must be int32"},
            {"batch_valid_length of one", [](C& c) { c.valid_length.shape[0] = 1; },
             "batch_valid_length has shape [1]: dimension 0 of [B] must be 2"},
            {"negative", [](C& c) { static_cast<int32_t*>(c.valid_length.data)[0] = -1; },
             "batch_valid_length[0] is -1: must be 0 to 3, tgt_seq_length is 4"},
            {"a full past", [](C& c) { static_cast<int32_t*>(c.valid_length.data)[1] = 4; },
             "batch_valid_length[1] is 4: must be 0 to 3, tgt_seq_length is 4 and the past is full"},
            {"the mask of a first iteration", [](C& c) { c.mask.shape[1] = 4; },
             "attention_mask has shape [2, 4, 4]: dimension 1 of [B, S, T] must be 1"},
            {"output of the whole sequence", [](C& c) { c.output.shape[1] = 4; },
             "output has shape [2, 4, 8]: dimension 1 of [B, tokens, hidden_size] must be 1"},
        });
}

}  // namespace
}  // namespace quire::test
