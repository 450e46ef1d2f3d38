// The table of tensors of DML_MULTIHEAD_ATTENTION1's document: how many dimensions each may have, and which
// types.
#include "tests/directml_call.h"
#include "tests/errors_table.h"

namespace quire::test {
namespace {

using Form = DirectmlCall::Form;

struct TableRow {
    const char* name;
    Form form;  // a call that has the tensor
    quire_tensor DirectmlCall::*tensor;
    int low, high;
    bool integers = false;       // INT32, not FLOAT32 or FLOAT16
    bool also_integers = false;  // quire takes both
};

const TableRow kTable[] = {
    {"query_tensor", Form::separate, &DirectmlCall::query, 3, 5},
    {"key_tensor", Form::separate, &DirectmlCall::key, 3, 5},
    {"value_tensor", Form::separate, &DirectmlCall::value, 3, 5},
    {"stacked_query_key_tensor", Form::query_key, &DirectmlCall::query_key, 5, 5},
    {"stacked_key_value_tensor", Form::key_value, &DirectmlCall::key_value, 5, 5},
    {"stacked_query_key_value_tensor", Form::all, &DirectmlCall::all, 5, 5},
    {"bias_tensor", Form::separate, &DirectmlCall::bias, 1, 5},
    {"mask_tensor", Form::separate, &DirectmlCall::mask, 1, 5, true},
    {"relative_position_bias_tensor", Form::separate, &DirectmlCall::relative, 4, 5},
    {"past_key_tensor", Form::separate, &DirectmlCall::past_key, 4, 5},
    {"past_value_tensor", Form::separate, &DirectmlCall::past_value, 4, 5},
    {"past_sequence_lengths_tensor", Form::separate, &DirectmlCall::lengths, 1, 5, false, true},
    {"output_tensor", Form::separate, &DirectmlCall::output, 3, 5},
    {"output_present_key_tensor", Form::separate, &DirectmlCall::present_key, 4, 5},
    {"output_present_value_tensor", Form::separate, &DirectmlCall::present_value, 4, 5},
};

// The tensor with dimensions of length 1 put before its own.
void lead(quire_tensor* t, int rank) {
    const quire_tensor given = *t;
    const int extra = rank - given.rank;
    for (int i = 0; i < rank; ++i) {
        t->shape[i] = i < extra ? 1 : given.shape[i - extra];
        t->strides[i] = i < extra ? 12345 : given.strides[i - extra];  // of length 1: of no account
    }
    t->rank = rank;
}

class DirectmlTable : public testing::TestWithParam<TableRow> {
protected:
    DirectmlTable() : name_(GetParam().name) {
        EXPECT_EQ(DirectmlCall(GetParam().form).plan(inline_context(), &plan_), QUIRE_OK);
    }
    ~DirectmlTable() override { quire_plan_destroy(plan_); }

    // The call fails, with a message that begins with the name of the tensor and `rest`.
    void expect_refused(DirectmlCall* call, const std::string& rest) {
        const std::vector<uint8_t> before = call->buffers.bytes();
        EXPECT_EQ(call->run(plan_), QUIRE_INVALID_ARGUMENT);
        EXPECT_EQ(std::string(quire_last_error()).rfind(name_ + rest, 0), 0u) << quire_last_error();
        EXPECT_EQ(call->buffers.bytes(), before);
    }

    const std::string name_;
    quire_plan* plan_ = nullptr;
};

TEST_P(DirectmlTable, Dimensions) {
    const TableRow& row = GetParam();
    DirectmlCall plain(row.form);
    ASSERT_EQ(plain.run(plan_), QUIRE_OK) << quire_last_error();
    const int own = (plain.*row.tensor).rank;
    for (int rank = 0; rank <= QUIRE_MAX_RANK; ++rank) {
        SCOPED_TRACE(rank);
        DirectmlCall call(row.form);
        quire_tensor& tensor = call.*row.tensor;
        if (rank < own)
            tensor.rank = rank;  // fewer dimensions: some hold what is not theirs
        else
            lead(&tensor, rank);
        if (rank < row.low || rank > row.high) {
            expect_refused(&call, " has rank " + std::to_string(rank) + ": must be ");
        } else if (rank >= own) {
            EXPECT_EQ(call.run(plan_), QUIRE_OK) << quire_last_error();
            EXPECT_EQ(call.buffers.written(), plain.buffers.written());
        }
    }
}

TEST_P(DirectmlTable, Types) {
    const TableRow& row = GetParam();
    for (int type = QUIRE_NONE; type <= QUIRE_BOOL + 1; ++type) {
        SCOPED_TRACE(type);
        const bool right = row.integers ? type == QUIRE_INT32
                                        : type == QUIRE_F32 || (row.also_integers && type == QUIRE_INT32);
        if (right) continue;  // FLOAT16 is another data_type: then all tensors are
        DirectmlCall call(row.form);
        (call.*row.tensor).type = quire_type(type);
        expect_refused(&call, " has type ");
    }
}

INSTANTIATE_TEST_SUITE_P(Document, DirectmlTable, testing::ValuesIn(kTable),
                         [](const testing::TestParamInfo<TableRow>& row) { return row.param.name; });

// past_sequence_lengths as numbers, as the document has them, and as INT32.
TEST(DirectmlTypes, LengthsOfEitherType) {
    DirectmlCall numbers, integers;
    integers.lengths = integers.buffers.indices({2}, {4, 2}, QUIRE_INT32);
    EXPECT_EQ(integers.result(inline_context()), numbers.result(inline_context()));
}

}  // namespace
}  // namespace quire::test
