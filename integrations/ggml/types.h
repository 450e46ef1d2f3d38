// Types of ggml and what quire calls them.
#pragma once
#include "layout.h"
#include "quire/quire.h"

namespace quire_ggml {

struct TypeInfo {
    Type type;
    const char* name;  // of ggml_type_name
    quire_type quire;
    int64_t elements;  // of a block; 1: no blocks
    size_t bytes;      // of a block
};

constexpr TypeInfo kTypes[] = {{kF32, "f32", QUIRE_F32, 1, 4},           {kF16, "f16", QUIRE_F16, 1, 2},
                               {kBF16, "bf16", QUIRE_BF16, 1, 2},        {kQ8_0, "q8_0", QUIRE_Q8_0, 32, 34},
                               {kQ4_0, "q4_0", QUIRE_Q4_0, 32, 18},      {kQ4_1, "q4_1", QUIRE_Q4_1, 32, 20},
                               {kQ5_0, "q5_0", QUIRE_Q5_0, 32, 22},      {kQ5_1, "q5_1", QUIRE_Q5_1, 32, 24},
                               {kIQ4_NL, "iq4_nl", QUIRE_IQ4_NL, 32, 18}};

// Null: not a type that quire reads.
inline const TypeInfo* type_info(int32_t type) {
    for (const TypeInfo& info : kTypes)
        if (info.type == type) return &info;
    return nullptr;
}

}  // namespace quire_ggml
