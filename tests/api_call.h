// One valid call of each operator with all of its tensors, small. Tests change something about it.
#pragma once
#include <deque>
#include <vector>

#include "quire/quire.h"
#include "tests/support/guarded.h"

namespace quire::test {

// The buffers of one call. While locked, none may be written and only indices may be read: that is how a call
// that is wrong must treat them.
class Buffers {
public:
    // Dense tensors. Numbers are small, finite, and different from tensor to tensor.
    quire_tensor numbers(quire_type type, const std::vector<int64_t>& shape);
    quire_tensor indices(const std::vector<int64_t>& shape, const std::vector<int64_t>& values,
                         quire_type type = QUIRE_INT64);
    quire_tensor output(quire_type type, const std::vector<int64_t>& shape);

    void lock();
    void unlock();
    std::vector<uint8_t> bytes() const;    // of all
    std::vector<uint8_t> written() const;  // of outputs and caches, which `also_written` names
    void also_written(const quire_tensor& tensor);

private:
    enum class Role { numbers, indices, output };
    struct Buffer {
        Role role;
        bool written;
        GuardedBuffer memory;
    };
    quire_tensor add(Role role, quire_type type, const std::vector<int64_t>& shape);

    std::deque<Buffer> buffers_;
    int seed_ = 0;
};

// Entry i of a dense INT64 tensor.
inline int64_t& entry(const quire_tensor& tensor, int64_t i) { return static_cast<int64_t*>(tensor.data)[i]; }

class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    virtual ~Call() = default;
    virtual quire_status plan(quire_context* context, quire_plan** plan) const = 0;
    virtual quire_status run(const quire_plan* plan) = 0;
    virtual quire_status prepare(const quire_plan* plan, quire_run** run) = 0;

    // A plan, one run, and what it wrote; a test failure where one of them fails.
    std::vector<uint8_t> result(quire_context* context);

    Buffers buffers;
};

// Two sequences, S {1, 3}, T {5, 6}; H 4, Hk 2, D 16, Dv 8.
class AttentionCall : public Call {
public:
    enum class Keys {
        pages,      // int8 keys, f16 values, page_size 4, every optional tensor given
        int4_rows,  // int4 keys and values, offsets
        dense,      // f32 [B, T, Hk, D], query [B, S, H, D] with S 3, T 6
    };
    explicit AttentionCall(Keys keys = Keys::pages);
    quire_status plan(quire_context* context, quire_plan** plan) const override;
    quire_status run(const quire_plan* plan) override;
    quire_status prepare(const quire_plan* plan, quire_run** run) override;

    quire_attention_desc desc;
    quire_attention_args args;
    quire_tensor query, key, value, key_scale, value_scale, seqstarts, kvstarts, cachestarts, attn_mask,
        sinks, output, lse, query_positions, key_begin, key_end, tree_mask, attn_mask_slopes;

private:
    void make_pages();
    void make_int4_rows();
    void make_dense();
};

// Two sequences, 1 and 3 new tokens at positions 4 and 3; Hk 2, D 16, Dv 8; int8 keys, f16 values, pages
// of 4.
class AppendCall : public Call {
public:
    AppendCall();
    quire_status plan(quire_context* context, quire_plan** plan) const override;
    quire_status run(const quire_plan* plan) override;
    quire_status prepare(const quire_plan* plan, quire_run** run) override;

    quire_append_desc desc;
    quire_append_args args;
    quire_tensor new_key, new_value, key, value, key_scale, seqstarts, start_pos, cachestarts;
};

// The same sequences; H 4, Hk 2, D 16; layer 1 of 2, quant_bit 8, quant_group 8, cache_layout 0, pages of 4.
class PmxCall : public Call {
public:
    PmxCall();
    quire_status plan(quire_context* context, quire_plan** plan) const override;
    quire_status run(const quire_plan* plan) override;
    quire_status prepare(const quire_plan* plan, quire_run** run) override;

    quire_pmx_dynamic_multi_head_cache_attention_desc desc;
    quire_pmx_dynamic_multi_head_cache_attention_args args;
    quire_tensor query, current_key, current_value, seqstarts, kvstarts, cachestarts, start_pos, cache, scale,
        attn_mask, sinks, attn_output, lse;
};

// n 3, H 2, Dv 8, f16. Has no plan.
class MergeCall : public Call {
public:
    MergeCall();
    quire_status plan(quire_context* context, quire_plan** plan) const override;
    quire_status run(const quire_plan* plan) override;
    quire_status prepare(const quire_plan* plan, quire_run** run) override;

    const quire_tensor *a, *lse_of_a, *b, *lse_of_b, *merged, *merged_lse;  // the arguments
    quire_tensor output_a, lse_a, output_b, lse_b, output, lse;
};

// A context that runs inline, on the best target; for the whole program.
quire_context* inline_context();

}  // namespace quire::test
