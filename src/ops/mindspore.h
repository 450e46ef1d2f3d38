// mindspore.nn.transformer.MultiHeadAttention: what its files share.
#pragma once
#include "src/ops/operator.h"

namespace quire::mindspore {

using Args = quire_mindspore_multi_head_attention_args;

// A call's tensors, checked.
struct Tensors {
    bool incremental = false;
    int64_t S = 0, added = 0;  // tokens of a sequence: of the query; of key and value
    ProjectedRows query, key, value, output;
    const quire_tensor *mask = nullptr, *key_past = nullptr, *value_past = nullptr;
    const quire_tensor *valid_length = nullptr, *key_present = nullptr, *value_present = nullptr;
};

Status check_tensors(const MindsporeSpec& layer, const AttentionSpec& spec, const Args& args,
                     Tensors* tensors);

// Element b of batch_valid_length.
int64_t valid_length(const Tensors& tensors, int64_t b);

// (1 - attention_mask) * -10000
ScoreTerm mask_term(const quire_tensor& mask);

}  // namespace quire::mindspore
