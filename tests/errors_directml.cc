// Wrong calls of quire_directml_multihead_attention1_plan and ..._attention1.
#include <cmath>
#include <limits>

#include "tests/directml_call.h"
#include "tests/errors_table.h"

namespace quire::test {
namespace {

using Form = DirectmlCall::Form;
using Rows = std::vector<WrongCall<DirectmlCall>>;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

template <Form form>
std::unique_ptr<DirectmlCall> make() {
    return std::make_unique<DirectmlCall>(form);
}

TEST(ErrorsDirectml, Descriptor) {
    expect_wrong_descs<DirectmlCall>({
        {"no struct size", [](DirectmlCall& c) { c.desc.struct_size = 0; },
         "desc.struct_size is 0: must be sizeof the struct, 48"},
        {"no query heads", [](DirectmlCall& c) { c.desc.query_head_count = 0; },
         "query_head_count is 0: must be 1 to 1048576"},
        {"negative key heads", [](DirectmlCall& c) { c.desc.key_value_head_count = -2; },
         "key_value_head_count is -2: must be 0 to 1048576"},
        {"key heads that do not divide", [](DirectmlCall& c) { c.desc.key_value_head_count = 3; },
         "key_value_head_count is 3: must divide query_head_count, 4"},
        {"head_size 0", [](DirectmlCall& c) { c.desc.head_size = 0; }, "head_size is 0: must be 1 to 1024"},
        {"value_head_size 1025", [](DirectmlCall& c) { c.desc.value_head_size = 1025; },
         "value_head_size is 1025: must be 0 to 1024"},
        {"data_type bf16", [](DirectmlCall& c) { c.desc.data_type = QUIRE_BF16; },
         "data_type is bf16: must be f32 or f16"},
        {"mask_type 5", [](DirectmlCall& c) { c.desc.mask_type = quire_directml_mask_type(5); },
         "mask_type is 5: must be 0 to 4"},
        {"scale not set",
         [](DirectmlCall& c) {
             quire_directml_multihead_attention1_desc_init(&c.desc);
             c.desc.query_head_count = c.desc.head_size = 4;
         },
         "scale is nan: must be finite"},
        {"filter +Inf", [](DirectmlCall& c) { c.desc.mask_filter_value = INFINITY; },
         "mask_filter_value is inf: must be finite or -Inf"},
        {"filter NaN", [](DirectmlCall& c) { c.desc.mask_filter_value = NAN; },
         "mask_filter_value is nan: must be finite or -Inf"},
        {"precision 7", [](DirectmlCall& c) { c.desc.precision = quire_precision(7); },
         "precision is 7: must be 0 to 2"},
    });
}

TEST(ErrorsDirectml, Separate) {
    expect_wrong_args(
        make<Form::separate>,
        Rows{
            {"no struct size", [](DirectmlCall& c) { c.args.struct_size = 4; },
             "args.struct_size is 4: must be sizeof the struct, 128"},
            {"no query", [](DirectmlCall& c) { c.args.query_tensor = nullptr; },
             "query_tensor is NULL: must be given without a stacked_query_key_tensor or "
             "stacked_query_key_value_tensor"},
            {"no key", [](DirectmlCall& c) { c.args.key_tensor = nullptr; },
             "key_tensor is NULL: must be given with value_tensor"},
            {"no value", [](DirectmlCall& c) { c.args.value_tensor = nullptr; },
             "value_tensor is NULL: must be given with key_tensor"},
            {"query of other type", [](DirectmlCall& c) { c.query.type = QUIRE_F16; },
             "query_tensor has type f16: must be data_type, f32"},
            {"query of unknown type", [](DirectmlCall& c) { c.query.type = quire_type(77); },
             "query_tensor has type 77: must be data_type, f32"},
            {"query of rank 2", [](DirectmlCall& c) { c.query.rank = 2; },
             "query_tensor has rank 2: must be 3 to 5, [B, S, H * D]"},
            {"query of rank 6", [](DirectmlCall& c) { c.query.rank = 6; },
             "query_tensor has rank 6: must be 3 to 5, [B, S, H * D]"},
            {"query of another size", [](DirectmlCall& c) { c.query.shape[2] = 48; },
             "query_tensor has shape [2, 3, 48]: dimension 2 of [B, S, H * D] must be 64"},
            {"query in columns", [](DirectmlCall& c) { c.query.strides[2] = 3; },
             "query_tensor has stride 3 in its last dimension: must be 1"},
            {"query without data", [](DirectmlCall& c) { c.query.data = nullptr; },
             "query_tensor has null data: must point at [2, 3, 64] elements"},
            {"query of a negative length", [](DirectmlCall& c) { c.query.shape[1] = -1; },
             "query_tensor has length -1 in dimension 1: must be >= 0"},
            {"query whose size overflows", [](DirectmlCall& c) { c.query.shape[1] = kMax; },
             "query_tensor has shape [2, 9223372036854775807, 64]: its size must fit in 63 bits"},
            {"too many sequences", [](DirectmlCall& c) { c.query.shape[0] = int64_t(1) << 33; },
             "batchSize is 8589934592: must be 0 to 16777216"},
            {"key of query heads", [](DirectmlCall& c) { c.key.shape[2] = 64; },
             "key_tensor has shape [2, 3, 64]: dimension 2 of [B, N, Hk * D] must be 32"},
            {"key of another batch", [](DirectmlCall& c) { c.key.shape[0] = 1; },
             "key_tensor has shape [1, 3, 32]: dimension 0 of [B, N, Hk * D] must be 2"},
            {"value of another length", [](DirectmlCall& c) { c.value.shape[2] = 2; },
             "value_tensor has shape [2, 2, 16]: dimension 1 of [B, N, Hk * Dv] must be 3"},
            {"value with a leading dimension", [](DirectmlCall& c) { c.value.shape[0] = 2; },
             "value_tensor has shape [2, 2, 3, 16]: dimensions before those of [B, N, Hk * Dv] must have "
             "length 1"},
            {"bias sized by query heads", [](DirectmlCall& c) { c.bias.shape[0] = 192; },
             "bias_tensor has shape [192]: dimension 0 of [H * D + Hk * D + Hk * Dv] must be 112"},
            {"bias of rank 6", [](DirectmlCall& c) { c.bias.rank = 6; },
             "bias_tensor has rank 6: must be 1 to 5, [H * D + Hk * D + Hk * Dv]"},
            {"bias f16", [](DirectmlCall& c) { c.bias.type = QUIRE_F16; },
             "bias_tensor has type f16: must be data_type, f32"},
            {"no output", [](DirectmlCall& c) { c.args.output_tensor = nullptr; },
             "output_tensor is NULL: must be given in every call"},
            {"output of query size", [](DirectmlCall& c) { c.output.shape[2] = 64; },
             "output_tensor has shape [2, 3, 64]: dimension 2 of [B, S, H * Dv] must be 32"},
            {"output rows on each other", [](DirectmlCall& c) { c.output.strides[1] = 0; },
             "output_tensor has stride 0 in dimension 1: must keep its elements apart, it is written"},
        });
}

TEST(ErrorsDirectml, Stacked) {
    expect_wrong_args(
        make<Form::query_key>,
        Rows{
            {"query too", [](DirectmlCall& c) { c.args.query_tensor = &c.query; },
             "query_tensor is given: must be NULL with stacked_query_key_tensor"},
            {"key too", [](DirectmlCall& c) { c.args.key_tensor = &c.key; },
             "key_tensor is given: must be NULL with stacked_query_key_tensor"},
            {"stacked_key_value too", [](DirectmlCall& c) { c.args.stacked_key_value_tensor = &c.key_value; },
             "stacked_key_value_tensor is given: must be NULL with stacked_query_key_tensor"},
            {"no value", [](DirectmlCall& c) { c.args.value_tensor = nullptr; },
             "value_tensor is NULL: must be given with stacked_query_key_tensor"},
            {"rank 4", [](DirectmlCall& c) { c.query_key.rank = 4; },
             "stacked_query_key_tensor has rank 4: must be 5, [B, S, H, 2, D]"},
            {"three parts", [](DirectmlCall& c) { c.query_key.shape[3] = 3; },
             "stacked_query_key_tensor has shape [2, 3, 4, 3, 16]: dimension 3 of [B, S, H, 2, D] must be 2"},
            {"value of another length", [](DirectmlCall& c) { c.value.shape[2] = 2; },
             "value_tensor has shape [2, 2, 32]: dimension 1 of [B, N, Hk * Dv] must be 3"},
        });
    expect_wrong_args(make<Form::key_value>,
                      Rows{
                          {"key too", [](DirectmlCall& c) { c.args.key_tensor = &c.key; },
                           "key_tensor is given: must be NULL with stacked_key_value_tensor"},
                          {"value too", [](DirectmlCall& c) { c.args.value_tensor = &c.value; },
                           "value_tensor is given: must be NULL with stacked_key_value_tensor"},
                          {"queries stacked with fewer key heads",
                           [](DirectmlCall& c) {
                               c.args.query_tensor = nullptr;
                               c.args.stacked_key_value_tensor = nullptr;
                               c.args.stacked_query_key_value_tensor = &c.all;
                           },
                           "stacked_query_key_value_tensor is given: query_head_count, 4, and "
                           "key_value_head_count, 2, must be equal "
                           "with it"},
                          {"f16", [](DirectmlCall& c) { c.key_value.type = QUIRE_F16; },
                           "stacked_key_value_tensor has type f16: must be data_type, f32"},
                          {"key heads", [](DirectmlCall& c) { c.key_value.shape[2] = 4; },
                           "stacked_key_value_tensor has shape [2, 3, 4, 2, 16]: dimension 2 of [B, N, Hk, "
                           "2, D] must be 2"},
                      });
    expect_wrong_args(
        make<Form::all>,
        Rows{
            {"query too", [](DirectmlCall& c) { c.args.query_tensor = &c.query; },
             "query_tensor is given: must be NULL with stacked_query_key_value_tensor"},
            {"value too", [](DirectmlCall& c) { c.args.value_tensor = &c.value; },
             "value_tensor is given: must be NULL with stacked_query_key_value_tensor"},
            {"stacked_query_key too", [](DirectmlCall& c) { c.args.stacked_query_key_tensor = &c.query_key; },
             "stacked_query_key_tensor is given: must be NULL with stacked_query_key_value_tensor"},
            {"in columns", [](DirectmlCall& c) { c.all.strides[4] = 2; },
             "stacked_query_key_value_tensor has stride 2 in its last dimension: must be 1"},
        });
    expect_wrong_args(make<Form::separate>, Rows{
                                                {"values stacked with another size",
                                                 [](DirectmlCall& c) {
                                                     c.args.key_tensor = c.args.value_tensor = nullptr;
                                                     c.args.stacked_key_value_tensor = &c.key_value;
                                                 },
                                                 "stacked_key_value_tensor is given: head_size, 16, and "
                                                 "value_head_size, 8, must be equal with it"},
                                            });
}

TEST(ErrorsDirectml, PastAndPresent) {
    const Rows with_past{
        {"no past_value", [](DirectmlCall& c) { c.args.past_value_tensor = nullptr; },
         "past_value_tensor is NULL: must be given with past_key_tensor"},
        {"no past_key", [](DirectmlCall& c) { c.args.past_key_tensor = nullptr; },
         "past_key_tensor is NULL: must be given with past_value_tensor"},
        {"past_key of rank 3", [](DirectmlCall& c) { c.past_key.rank = 3; },
         "past_key_tensor has rank 3: must be 4 to 5, [B, Hk, past, D]"},
        {"past_key of query heads", [](DirectmlCall& c) { c.past_key.shape[1] = 4; },
         "past_key_tensor has shape [2, 4, 4, 16]: dimension 1 of [B, Hk, past, D] must be 2"},
        {"past_value of another length", [](DirectmlCall& c) { c.past_value.shape[2] = 3; },
         "past_value_tensor has shape [2, 2, 3, 8]: dimension 2 of [B, Hk, past, Dv] must be 4"},
        {"past_value f16", [](DirectmlCall& c) { c.past_value.type = QUIRE_F16; },
         "past_value_tensor has type f16: must be data_type, f32"},
        {"present_key too short", [](DirectmlCall& c) { c.present_key.shape[2] = 3; }, nullptr},
        {"present_value of another size", [](DirectmlCall& c) { c.present_value.shape[3] = 16; }, nullptr},
        {"present_key of rank 3", [](DirectmlCall& c) { c.present_key.rank = 3; },
         "output_present_key_tensor has rank 3: must be 4 to 5, [B, Hk, T, D]"},
        {"present_key heads on each other", [](DirectmlCall& c) { c.present_key.strides[1] = 0; },
         "output_present_key_tensor has stride 0 in dimension 1: must keep its elements apart, it is "
         "written"},
        {"lengths without past",
         [](DirectmlCall& c) { c.args.past_key_tensor = c.args.past_value_tensor = nullptr; }, nullptr},
        {"lengths int64", [](DirectmlCall& c) { c.lengths.type = QUIRE_INT64; },
         "past_sequence_lengths_tensor has type int64: must be data_type, f32, or int32"},
        {"lengths f16", [](DirectmlCall& c) { c.lengths.type = QUIRE_F16; },
         "past_sequence_lengths_tensor has type f16: must be data_type, f32, or int32"},
        {"lengths of rank 0", [](DirectmlCall& c) { c.lengths.rank = 0; },
         "past_sequence_lengths_tensor has rank 0: must be 1 to 5, [B]"},
        {"lengths of one sequence", [](DirectmlCall& c) { c.lengths.shape[0] = 1; },
         "past_sequence_lengths_tensor has shape [1]: dimension 0 of [B] must be 2"},
        {"length past the past", [](DirectmlCall& c) { static_cast<float*>(c.lengths.data)[1] = 5; },
         "past_sequence_lengths_tensor[1] is 5: must be a whole number 0 to 4"},
        {"length negative", [](DirectmlCall& c) { static_cast<float*>(c.lengths.data)[0] = -1; },
         "past_sequence_lengths_tensor[0] is -1: must be a whole number 0 to 4"},
        {"length not whole", [](DirectmlCall& c) { static_cast<float*>(c.lengths.data)[0] = 2.5f; },
         "past_sequence_lengths_tensor[0] is 2.5: must be a whole number 0 to 4"},
        {"length NaN", [](DirectmlCall& c) { static_cast<float*>(c.lengths.data)[0] = NAN; },
         "past_sequence_lengths_tensor[0] is nan: must be a whole number 0 to 4"},
    };
    // Messages that tell T.
    const auto with = [&](const char* key, const char* value, const char* no_past) {
        Rows rows = with_past;
        const char* texts[] = {key, value, no_past};
        int next = 0;
        for (WrongCall<DirectmlCall>& row : rows)
            if (row.message == nullptr) row.message = texts[next++];
        return rows;
    };
    expect_wrong_args(
        make<Form::separate>,
        with("output_present_key_tensor has shape [2, 2, 3, 16]: dimension 2 of [B, Hk, T, D] must be 7",
             "output_present_value_tensor has shape [2, 2, 7, 16]: dimension 3 of [B, Hk, T, Dv] must be 8",
             "output_present_key_tensor has shape [2, 2, 7, 16]: dimension 2 of [B, Hk, T, D] must be 3"));
    expect_wrong_args(
        make<Form::past_only>,
        with("output_present_key_tensor has shape [2, 2, 3, 16]: dimension 2 of [B, Hk, T, D] must be 4",
             "output_present_value_tensor has shape [2, 2, 4, 16]: dimension 3 of [B, Hk, T, Dv] must be 8",
             "key_tensor is NULL: must be given where there is no past_key_tensor"));
    expect_wrong_args(make<Form::separate>,
                      Rows{
                          {"lengths without past",
                           [](DirectmlCall& c) {
                               c.args.past_key_tensor = c.args.past_value_tensor = nullptr;
                               c.args.output_present_key_tensor = c.args.output_present_value_tensor =
                                   nullptr;
                           },
                           "past_sequence_lengths_tensor is given: must be NULL without past_key_tensor"},
                      });
}

template <quire_directml_mask_type type>
std::unique_ptr<DirectmlCall> masked() {
    auto call = std::make_unique<DirectmlCall>();
    call->desc.mask_type = type;
    if (type == QUIRE_DIRECTML_MASK_NONE) call->args.mask_tensor = nullptr;
    if (type == QUIRE_DIRECTML_MASK_KEY_SEQUENCE_LENGTH)
        call->mask = call->buffers.indices({1, 2}, {6, 5}, QUIRE_INT32);
    if (type == QUIRE_DIRECTML_MASK_KEY_QUERY_SEQUENCE_LENGTH_START_END)
        call->mask = call->buffers.indices({8}, {6, 5, 0, 3, 6, 0, 7, 14}, QUIRE_INT32);
    if (type == QUIRE_DIRECTML_MASK_BOOLEAN)
        call->mask = call->buffers.indices({2, 1, 1, 7}, std::vector<int64_t>(14, 1), QUIRE_INT32);
    return call;
}

TEST(ErrorsDirectml, Masks) {
    expect_wrong_args(
        masked<QUIRE_DIRECTML_MASK_NONE>,
        Rows{
            {"mask given", [](DirectmlCall& c) { c.args.mask_tensor = &c.mask; },
             "mask_tensor is given: must be NULL where mask_type is NONE"},
            {"bias of rank 3", [](DirectmlCall& c) { c.relative.rank = 3; },
             "relative_position_bias_tensor has rank 3: must be 4 to 5, [B or 1, H or 1, S or 1, T or 1]"},
            {"bias of another length", [](DirectmlCall& c) { c.relative.shape[3] = 4; },
             "relative_position_bias_tensor has shape [1, 4, 3, 4]: must be [2 or 1, 4 or 1, 3 or 1, 7 or "
             "1]"},
            {"bias of key heads", [](DirectmlCall& c) { c.relative.shape[1] = 2; },
             "relative_position_bias_tensor has shape [1, 2, 3, 7]: must be [2 or 1, 4 or 1, 3 or 1, 7 or "
             "1]"},
            {"bias int32", [](DirectmlCall& c) { c.relative.type = QUIRE_INT32; },
             "relative_position_bias_tensor has type int32: must be data_type, f32"},
        });
    expect_wrong_args(masked<QUIRE_DIRECTML_MASK_KEY_SEQUENCE_LENGTH>,
                      Rows{
                          {"no mask", [](DirectmlCall& c) { c.args.mask_tensor = nullptr; },
                           "mask_tensor is NULL: must be given where mask_type is not NONE"},
                          {"int64", [](DirectmlCall& c) { c.mask.type = QUIRE_INT64; },
                           "mask_tensor has type int64: must be int32"},
                          {"bool", [](DirectmlCall& c) { c.mask.type = QUIRE_BOOL; },
                           "mask_tensor has type bool: must be int32"},
                          {"rank 0", [](DirectmlCall& c) { c.mask.rank = 0; },
                           "mask_tensor has rank 0: must be 1 to 5, [1, B]"},
                          {"ends and starts", [](DirectmlCall& c) { c.mask.shape[0] = 2; },
                           "mask_tensor has shape [2, 2]: dimension 0 of [1, B] must be 1"},
                          {"one sequence", [](DirectmlCall& c) { c.mask.shape[1] = 1; },
                           "mask_tensor has shape [1, 1]: dimension 1 of [1, B] must be 2"},
                      });
    expect_wrong_args(masked<QUIRE_DIRECTML_MASK_KEY_SEQUENCE_END_START>,
                      Rows{
                          {"ends alone", [](DirectmlCall& c) { c.mask.shape[0] = 1; },
                           "mask_tensor has shape [1, 2]: dimension 0 of [2, B] must be 2"},
                          {"[2 * B]", [](DirectmlCall& c) { c.mask.rank = 1; },
                           "mask_tensor has shape [1, 2]: dimension 0 of [2, B] must be 2"},
                      });
    expect_wrong_args(masked<QUIRE_DIRECTML_MASK_KEY_QUERY_SEQUENCE_LENGTH_START_END>,
                      Rows{
                          {"[3 * B]", [](DirectmlCall& c) { c.mask.shape[0] = 6; },
                           "mask_tensor has shape [6]: dimension 0 of [3 * B + 2] must be 8"},
                      });
    expect_wrong_args(masked<QUIRE_DIRECTML_MASK_BOOLEAN>,
                      Rows{
                          {"of the past alone", [](DirectmlCall& c) { c.mask.shape[3] = 4; },
                           "mask_tensor has shape [2, 1, 1, 4]: must be [2 or 1, 4 or 1, 3 or 1, 7 or 1]"},
                          {"rank 6", [](DirectmlCall& c) { c.mask.rank = 6; },
                           "mask_tensor has rank 6: must be 1 to 5, [B or 1, H or 1, S or 1, T or 1]"},
                          {"without data", [](DirectmlCall& c) { c.mask.data = nullptr; },
                           "mask_tensor has null data: must point at [2, 1, 1, 7] elements"},
                      });
}

}  // namespace
}  // namespace quire::test
