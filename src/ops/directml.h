// DML_MULTIHEAD_ATTENTION1: what its files share.
#pragma once
#include "src/ops/operator.h"

namespace quire::directml {

using Args = quire_directml_multihead_attention1_args;

// A call's tensors, checked: whatever the caller chose, as views [B, tokens, heads, size]. Rank 0: not given.
struct Tensors {
    int64_t B = 0, S = 0;
    int64_t added = 0, past = 0;  // N and past of quire.h
    quire_tensor query{}, key{}, value{};
    quire_tensor past_key{}, past_value{};
    quire_tensor output{}, present_key{}, present_value{};
    const char* bias = nullptr;  // of queries, then keys, then values
    int64_t T() const { return past + added; }
};
inline bool given(const quire_tensor& view) { return view.rank != 0; }

Status check_tensors(const AttentionSpec& spec, const Args& args, Tensors* tensors);

// Memory of the run for B integers of a call; what is read from the caller's tensors of other types goes
// there.
struct Lengths {
    int64_t *past = nullptr, *end = nullptr, *unused = nullptr;  // with past_sequence_lengths
    int64_t *mask_begin = nullptr, *mask_end = nullptr;          // of the masks by range
    static constexpr int kArrays = 5;
};

// past_sequence_lengths; `lengths` stays empty without it.
Status check_past_lengths(const AttentionSpec& spec, const Args& args, const Tensors& tensors,
                          int64_t* memory, Lengths* lengths);
// mask and relative_position_bias.
Status check_terms(const DirectmlSpec& directml, const AttentionSpec& spec, const Args& args,
                   const Tensors& tensors, int64_t* memory, Lengths* lengths, AttentionProblem* problem);

// ---- tensors with leading dimensions of length 1 ----

// low..high dimensions; `letters` is the documented shape.
Status check_rank(const char* name, const quire_tensor& tensor, int low, int high, const char* letters);
// The last `rank` dimensions: others before them must have length 1, and missing ones are put there.
Status align(const char* name, const quire_tensor& tensor, int rank, const char* letters,
             quire_tensor* aligned);

}  // namespace quire::directml
