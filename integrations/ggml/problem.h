// One call of the operator, in quire's words.
#pragma once
#include <string>

#include "layout.h"
#include "quire/quire.h"

namespace quire_ggml {

// Why a call goes to ggml's own function.
struct Reason {
    const char* text = nullptr;  // static; null: it does not
    explicit operator bool() const { return text != nullptr; }
};

// What one of ggml's calls asks for; of static shape only, so that threads may make it side by side.
struct Problem {
    int32_t key_type, value_type;
    int64_t tokens, keys, streams;
    int32_t heads, kv_heads, head_dim, value_head_dim;
    float scale, max_bias, soft_cap;
    quire_tensor query, key, value, mask, sinks, output;
    bool has_mask, has_sinks;
};

Reason read_problem(const Tensor& dst, Problem* problem);

// A checked call, to be run by all threads; null where quire refuses it, with a text that stays.
// The memory belongs to the run until its end.
struct Gather;
quire_run* prepare(const Problem& problem, Gather* memory, Reason* reason);

// A context could be made: else nothing can be run, and this says why.
Reason context_failure();

}  // namespace quire_ggml
