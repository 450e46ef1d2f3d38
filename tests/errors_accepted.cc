// Valid but unusual calls, which must be accepted and give what the usual one gives.
#include <cmath>
#include <limits>

#include "tests/errors_table.h"

namespace quire::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();

// A copy at an odd address, in the buffers of `call`.
quire_tensor unaligned(Call& call, const quire_tensor& from) {
    int64_t bits = from.type == QUIRE_INT64 ? 64
                   : from.type == QUIRE_F32 ? 32
                   : from.type == QUIRE_F16 ? 16
                                            : 8;
    for (int i = 0; i < from.rank; ++i) bits *= from.shape[i];
    const int64_t bytes = bits / 8, room[] = {bytes + 1};
    quire_tensor to = from;
    to.data = static_cast<char*>(call.buffers.numbers(QUIRE_INT8, {room[0]}).data);
    if (reinterpret_cast<uintptr_t>(to.data) % 2 == 0) to.data = static_cast<char*>(to.data) + 1;
    std::memcpy(to.data, from.data, size_t(bytes));
    return to;
}

std::vector<uint8_t> bytes_of(const quire_tensor& tensor, size_t bytes) {
    const uint8_t* data = static_cast<const uint8_t*>(tensor.data);
    return {data, data + bytes};
}

void expect_same(AttentionCall& changed, AttentionCall& usual) {
    EXPECT_EQ(changed.result(inline_context()), usual.result(inline_context()));
}
void expect_usual(AttentionCall& changed) {
    AttentionCall usual;
    expect_same(changed, usual);
}

TEST(Accepted, WiderPageTable) {
    AttentionCall c;
    c.cachestarts = c.buffers.indices({2, 5}, {0, 4, kMax, kMin, -1, 10, 14, -1, kMin, 20});
    expect_usual(c);
}

TEST(Accepted, WiderMask) {
    AttentionCall c;
    const quire_tensor narrow = c.attn_mask;
    c.attn_mask = c.buffers.numbers(QUIRE_F32, {4, 4, 40});
    float* wide = static_cast<float*>(c.attn_mask.data);
    for (int64_t row = 0; row < 16; ++row)
        for (int64_t t = 0; t < 40; ++t)
            wide[row * 40 + t] = t < 11 ? static_cast<const float*>(narrow.data)[row * 12 + t] : NAN;
    expect_usual(c);
}

TEST(Accepted, MoreTreeWords) {
    AttentionCall c;
    c.tree_mask = c.buffers.indices({4, 3}, {1, -1, 0, 1, 0, -1, 3, 5, 5, 7, kMin, kMax});
    expect_usual(c);
}

TEST(Accepted, SharedPages) {
    AttentionCall shared, copied;
    for (AttentionCall* c : {&shared, &copied}) entry(c->cachestarts, 4) = 14;
    entry(shared.cachestarts, 3) = 0;  // the first page of the other sequence
    entry(copied.cachestarts, 3) = 10;
    std::memcpy(static_cast<char*>(copied.key.data) + 10 * 32, copied.key.data, 4 * 32);
    std::memcpy(static_cast<char*>(copied.value.data) + 10 * 32, copied.value.data, 4 * 32);
    std::memcpy(static_cast<char*>(copied.key_scale.data) + 10 * 16, copied.key_scale.data, 4 * 16);
    EXPECT_EQ(shared.result(inline_context()), copied.result(inline_context()));
}

TEST(Accepted, UnalignedAttention) {
    AttentionCall c;
    for (quire_tensor* t :
         {&c.query, &c.key, &c.value, &c.key_scale, &c.seqstarts, &c.kvstarts, &c.cachestarts, &c.attn_mask,
          &c.sinks, &c.query_positions, &c.key_begin, &c.key_end, &c.tree_mask, &c.output, &c.lse})
        *t = unaligned(c, *t);
    AttentionCall usual;
    c.result(inline_context());
    usual.result(inline_context());
    EXPECT_EQ(bytes_of(c.output, 4 * 4 * 8 * 4), bytes_of(usual.output, 4 * 4 * 8 * 4));
    EXPECT_EQ(bytes_of(c.lse, 4 * 4 * 4), bytes_of(usual.lse, 4 * 4 * 4));
}

TEST(Accepted, UnalignedPmx) {
    PmxCall c, usual;
    for (quire_tensor* t :
         {&c.query, &c.current_key, &c.current_value, &c.seqstarts, &c.kvstarts, &c.cachestarts, &c.start_pos,
          &c.cache, &c.scale, &c.attn_mask, &c.sinks, &c.attn_output, &c.lse})
        *t = unaligned(c, *t);
    c.result(inline_context());
    usual.result(inline_context());
    EXPECT_EQ(bytes_of(c.attn_output, 4 * 4 * 16 * 4), bytes_of(usual.attn_output, 4 * 4 * 16 * 4));
    EXPECT_EQ(bytes_of(c.cache, 20 * 128), bytes_of(usual.cache, 20 * 128));
    EXPECT_EQ(bytes_of(c.scale, 20 * 16 * 4), bytes_of(usual.scale, 20 * 16 * 4));
}

TEST(Accepted, UnalignedMerge) {
    MergeCall c, usual;
    for (quire_tensor* t : {&c.output_a, &c.lse_a, &c.output_b, &c.lse_b, &c.output, &c.lse})
        *t = unaligned(c, *t);
    EXPECT_EQ(c.run(nullptr), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(usual.run(nullptr), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(bytes_of(c.output, 96), bytes_of(usual.output, 96));
    EXPECT_EQ(bytes_of(c.lse, 24), bytes_of(usual.lse, 24));
}

// ---- strides ----

// One head, one token, one key: every stride is that of a dimension of length 1, but for the last.
class OneCall : public AttentionCall {
public:
    explicit OneCall(int64_t stride) : AttentionCall(Keys::int4_rows) {
        desc.num_heads = desc.num_kv_heads = 1;
        desc.key_format = desc.value_format = {QUIRE_INT4, 8, QUIRE_F32};
        for (quire_tensor* t : {&query, &key, &value, &key_scale, &output}) t->shape[0] = t->shape[1] = 1;
        key_scale.shape[2] = 2;
        value_scale = buffers.numbers(QUIRE_F32, {1, 1, 1});
        entry(seqstarts, 1) = entry(kvstarts, 1) = 1;
        entry(cachestarts, 0) = 0;
        seqstarts.shape[0] = kvstarts.shape[0] = 2;
        cachestarts.shape[0] = 1;
        attn_mask = buffers.numbers(QUIRE_F32, {1, 1, 1, 1});
        sinks = buffers.numbers(QUIRE_F32, {1});
        lse = buffers.output(QUIRE_F32, {1, 1});
        args.attn_mask = &attn_mask;
        args.sinks = &sinks;
        args.lse = &lse;
        if (stride == 0) return;
        for (quire_tensor* t : {&query, &key, &value, &key_scale, &value_scale, &cachestarts, &attn_mask,
                                &sinks, &output, &lse})
            for (int i = 0; i < t->rank; ++i)
                if (t->shape[i] == 1) t->strides[i] = stride;
    }
};

TEST(Accepted, AnyStrideOfLengthOne) {
    const std::vector<uint8_t> usual = OneCall(0).result(inline_context());
    for (int64_t stride : {int64_t(-1), int64_t(3), kMax, kMin}) {
        SCOPED_TRACE(stride);
        EXPECT_EQ(OneCall(stride).result(inline_context()), usual);
    }
}

// Tokens from last to first, in query and output.
TEST(Accepted, NegativeStrides) {
    AttentionCall c(AttentionCall::Keys::dense), usual(AttentionCall::Keys::dense);
    for (AttentionCall* call : {&c, &usual}) call->args.attn_mask = call->args.lse = nullptr;
    for (quire_tensor* t : {&c.query, &c.output}) {
        t->data = static_cast<float*>(t->data) + 2 * t->strides[1];
        t->strides[1] = -t->strides[1];
    }
    expect_same(c, usual);
}

// Keys and values of one head, for two: stride 0 in what is only read.
TEST(Accepted, BroadcastKeys) {
    using Keys = AttentionCall::Keys;
    AttentionCall broadcast(Keys::dense), copied(Keys::dense);
    for (quire_tensor* t : {&broadcast.key, &broadcast.value}) t->strides[2] = 0;
    for (const quire_tensor* t : {&copied.key, &copied.value}) {
        const int64_t D = t->shape[3];
        float* rows = static_cast<float*>(t->data);
        for (int64_t row = 0; row < 12; ++row)
            std::memcpy(rows + (2 * row + 1) * D, rows + 2 * row * D, size_t(D) * 4);
    }
    expect_same(broadcast, copied);
}

// ---- nothing to do ----

void expect_nothing_written(Call& call) {
    const std::vector<uint8_t> before = call.buffers.bytes();
    call.result(inline_context());
    EXPECT_EQ(call.buffers.bytes(), before);
}

// No data where there are no elements.
void make_empty(std::initializer_list<quire_tensor*> tensors) {
    for (quire_tensor* t : tensors) {
        t->shape[0] = 0;
        t->data = nullptr;
    }
}

TEST(Accepted, NoSequences) {
    AttentionCall a;
    a.args.decoding_batches = 0;
    a.attn_mask.shape[1] = 0;
    a.seqstarts.shape[0] = a.kvstarts.shape[0] = 1;
    make_empty({&a.query, &a.output, &a.lse, &a.cachestarts, &a.query_positions, &a.key_begin, &a.key_end,
                &a.tree_mask});
    expect_nothing_written(a);

    AppendCall b;
    b.seqstarts.shape[0] = 1;
    make_empty({&b.new_key, &b.new_value, &b.start_pos, &b.cachestarts});
    expect_nothing_written(b);

    PmxCall c;
    c.args.decoding_batches = 0;
    c.seqstarts.shape[0] = c.kvstarts.shape[0] = 1;
    make_empty({&c.query, &c.current_key, &c.current_value, &c.start_pos, &c.cachestarts, &c.attn_mask,
                &c.attn_output, &c.lse});
    expect_nothing_written(c);

    MergeCall d;
    make_empty({&d.output_a, &d.lse_a, &d.output_b, &d.lse_b, &d.output, &d.lse});
    const std::vector<uint8_t> before = d.buffers.bytes();
    EXPECT_EQ(d.run(nullptr), QUIRE_OK) << quire_last_error();
    EXPECT_EQ(d.buffers.bytes(), before);
}

TEST(Accepted, NoQueries) {
    AttentionCall a;
    a.attn_mask.shape[1] = 0;
    entry(a.seqstarts, 1) = entry(a.seqstarts, 2) = 0;
    make_empty({&a.query, &a.output, &a.lse, &a.tree_mask});
    expect_nothing_written(a);

    AppendCall b;
    entry(b.seqstarts, 1) = entry(b.seqstarts, 2) = 0;
    make_empty({&b.new_key, &b.new_value});
    expect_nothing_written(b);

    PmxCall c;
    entry(c.seqstarts, 1) = entry(c.seqstarts, 2) = 0;
    entry(c.kvstarts, 1) = 4;
    entry(c.kvstarts, 2) = 7;
    make_empty({&c.query, &c.current_key, &c.current_value, &c.attn_mask, &c.attn_output, &c.lse});
    expect_nothing_written(c);

    AttentionCall d(AttentionCall::Keys::dense);
    for (quire_tensor* t : {&d.query, &d.output, &d.lse}) t->shape[1] = 0;
    d.attn_mask.shape[2] = 0;
    expect_nothing_written(d);
}

// Empty tensors may have lengths whose product overflows, and strides that mean nothing.
TEST(Accepted, EmptyTensorsOfAnyShape) {
    AttentionCall c;
    entry(c.seqstarts, 1) = entry(c.seqstarts, 2) = 0;
    make_empty({&c.query, &c.output, &c.lse, &c.tree_mask});
    c.tree_mask.shape[1] = kMax;
    c.attn_mask.shape[1] = 0;
    c.attn_mask.shape[2] = kMax;
    for (const int64_t stride : {kMin, kMax, kMax / 8}) {  // in bytes they would overflow
        for (quire_tensor* t : {&c.query, &c.output, &c.lse, &c.tree_mask, &c.attn_mask})
            t->strides[0] = stride;
        expect_nothing_written(c);
    }
}

// As many sequences as there may be, all of them empty, at no cost; one more is refused.
TEST(Accepted, EmptyBatch) {
    AttentionCall c(AttentionCall::Keys::dense);
    c.args.attn_mask = c.args.lse = nullptr;
    for (quire_tensor* t : {&c.query, &c.key, &c.value, &c.output}) {
        t->shape[0] = int64_t(1) << 24;
        t->shape[1] = 0;
    }
    expect_nothing_written(c);
    for (quire_tensor* t : {&c.query, &c.key, &c.value, &c.output}) t->shape[0] += 1;
    quire_plan* plan = nullptr;
    ASSERT_EQ(c.plan(inline_context(), &plan), QUIRE_OK);
    expect_error(c.run(plan), "query has 16777217 sequences: must have at most 16777216");
    quire_plan_destroy(plan);
}

// One start stands for any number of them, with stride 0.
TEST(Accepted, StartsOfAnEmptyBatch) {
    constexpr int64_t kMost = int64_t(1) << 24;
    PmxCall c;
    for (quire_tensor* t : {&c.seqstarts, &c.kvstarts}) {
        t->shape[0] = kMost + 1;
        t->strides[0] = 0;
        entry(*t, 0) = 0;
    }
    for (quire_tensor* t : {&c.cachestarts, &c.start_pos}) {
        t->shape[0] = kMost;
        t->strides[0] = 0;
        entry(*t, 0) = 0;
    }
    make_empty({&c.query, &c.current_key, &c.current_value, &c.attn_mask, &c.attn_output, &c.lse});
    expect_nothing_written(c);
    for (const int64_t B : {kMost + 1, kMost << 16}) {
        c.seqstarts.shape[0] = B + 1;
        quire_plan* plan = nullptr;
        ASSERT_EQ(c.plan(inline_context(), &plan), QUIRE_OK);
        expect_error(
            c.run(plan),
            ("seqstarts has " + std::to_string(B) + " sequences: must have at most 16777216").c_str());
        quire_plan_destroy(plan);
    }
}

// Any number of rows without elements.
TEST(Accepted, EmptyMerge) {
    MergeCall c;
    for (quire_tensor* t : {&c.output_a, &c.lse_a, &c.output_b, &c.lse_b, &c.output, &c.lse}) {
        t->shape[0] = kMax;
        t->shape[1] = 0;
    }
    EXPECT_EQ(c.run(nullptr), QUIRE_OK) << quire_last_error();
}

TEST(Accepted, OneSequenceWithoutQueries) {
    AttentionCall c, usual;
    entry(c.seqstarts, 1) = 0;  // all four tokens are of the second sequence
    entry(usual.seqstarts, 1) = 0;
    entry(usual.cachestarts, 0) = 16;  // whatever the first sequence holds
    expect_same(c, usual);
}

// ---- nothing to see ----

TEST(Accepted, NoKeys) {
    AttentionCall c;
    c.args.attn_mask = c.args.attn_mask_slopes = c.args.sinks = nullptr;
    c.args.key_begin = c.args.key_end = c.args.tree_mask = nullptr;
    entry(c.kvstarts, 1) = entry(c.kvstarts, 2) = 0;
    make_empty({&c.key, &c.value, &c.key_scale});
    c.cachestarts.shape[1] = 0;
    c.result(inline_context());
    const float *output = static_cast<float*>(c.output.data), *lse = static_cast<float*>(c.lse.data);
    for (int i = 0; i < 4 * 4 * 8; ++i) EXPECT_EQ(output[i], 0);
    for (int i = 0; i < 4 * 4; ++i) EXPECT_EQ(lse[i], -INFINITY);
}

TEST(Accepted, EmptyKeyRange) {
    AttentionCall c;
    entry(c.key_begin, 1) = 5;
    entry(c.key_end, 1) = 2;
    c.args.sinks = nullptr;
    c.result(inline_context());
    const float *output = static_cast<float*>(c.output.data), *lse = static_cast<float*>(c.lse.data);
    for (int i = 4 * 8; i < 4 * 4 * 8; ++i) EXPECT_EQ(output[i], 0);
    for (int i = 4; i < 4 * 4; ++i) EXPECT_EQ(lse[i], -INFINITY);
    EXPECT_NE(lse[0], -INFINITY);
}

// ---- optional tensors ----

TEST(Accepted, OneSequenceNeedsNoStarts) {
    using Keys = AttentionCall::Keys;
    AttentionCall with(Keys::int4_rows), without(Keys::int4_rows);
    with.seqstarts = with.buffers.indices({2}, {0, 4});
    with.kvstarts = with.buffers.indices({2}, {0, 20});
    with.args.cachestarts = nullptr;
    without.args.seqstarts = without.args.kvstarts = without.args.cachestarts = nullptr;
    EXPECT_EQ(with.result(inline_context()), without.result(inline_context()));
}

TEST(Accepted, AllSequencesDecode) {
    AttentionCall all, none;
    all.args.decoding_batches = 2;
    none.desc.is_causal = 0;
    none.args.decoding_batches = 0;
    EXPECT_EQ(all.result(inline_context()), none.result(inline_context()));
}

}  // namespace
}  // namespace quire::test
