// A loaded ggml: the function that was replaced in it, and whether its layouts are those of layout.h.
#pragma once
#include <atomic>

#include "layout.h"

namespace quire_ggml {

struct Host {
    Compute original = nullptr;
    int32_t op = -1;           // GGML_OP_FLASH_ATTN_EXT
    bool has_use_ref = false;  // in ComputeParams
    bool proved = false;       // tensors are laid out as Tensor says
    // Threads seen in the call that shows how ComputeParams is laid out, see call.cc.
    enum Params { unknown, trusted, refused };
    std::atomic<Params> params{unknown};
};

// The ggml whose code `caller` is in; made at its first call. Null where it can't be found: then there is
// nothing that the call could be passed on to, and the program is ended with a message.
Host& host_of(const void* caller);

// "" where all that layout.h says holds for the ggml that `handle` (of dlopen) finds, else what differs.
struct Proof {
    int32_t op = -1;
    bool has_use_ref = false;
    const char* difference = nullptr;  // null: none
};
Proof prove(void* handle);

}  // namespace quire_ggml
