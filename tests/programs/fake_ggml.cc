// As much of a ggml as libquire_ggml looks at, for tests/programs/ggml_takeover.cc; with FAKE_GGML a version
// that differs in one place. Its attention only counts that it was called.
#include <cstdlib>
#include <cstring>
#include <string>

#include "integrations/ggml/layout.h"
#include "integrations/ggml/types.h"

using namespace quire_ggml;

namespace {

bool differs(const char* where) {
    const char* variant = std::getenv("FAKE_GGML");
    return variant != nullptr && std::strcmp(variant, where) == 0;
}

struct Arena {
    char* at;
};

constexpr const char* kOps[] = {"NONE", "ADD", "SCALE", "PERMUTE", "FLASH_ATTN_EXT", "COUNT"};

Tensor* make(Arena* arena, int32_t type, const int64_t* ne, bool with_data) {
    auto* t = reinterpret_cast<Tensor*>(arena->at);
    arena->at += sizeof(Tensor);
    const TypeInfo& info = *type_info(type);
    *t = {};
    t->type = type;
    size_t bytes = info.bytes;
    for (int i = 0; i < kMaxDims; ++i) {
        t->ne[i] = ne[i];
        t->nb[i] = bytes;
        bytes *= size_t(i == 0 ? ne[0] / info.elements : ne[i]);
    }
    if (differs("strides")) t->nb[2] += 64;
    if (!with_data) return t;
    t->data = arena->at;
    arena->at += (bytes + 63) / 64 * 64;
    return t;
}

}  // namespace

extern "C" {

int fake_ggml_calls = 0;

const char* ggml_type_name(int32_t type) {
    const TypeInfo* info = type_info(differs("types") && type == kQ8_0 ? kQ4_0 : type);
    return info != nullptr ? info->name : "other";
}
const char* ggml_op_name(int32_t op) { return kOps[op]; }
size_t ggml_type_size(int32_t type) { return type_info(type)->bytes; }
int64_t ggml_blck_size(int32_t type) { return type_info(type)->elements; }
size_t ggml_row_size(int32_t type, int64_t n) {
    return size_t(n / ggml_blck_size(type)) * ggml_type_size(type);
}
int64_t ggml_nelements(const Tensor* t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }
size_t ggml_nbytes(const Tensor* t) { return t->nb[3] * size_t(t->ne[3]); }
size_t ggml_tensor_overhead() { return sizeof(Tensor) + 32 + (differs("size") ? 16 : 0); }
const char* ggml_get_name(const Tensor* t) { return t->name; }
void* ggml_get_data(const Tensor* t) { return t->data; }
Tensor* ggml_set_name(Tensor* t, const char*) { return t; }

Arena* ggml_init(InitParams params) {
    auto* arena = new Arena{static_cast<char*>(params.mem_buffer)};
    return arena;
}
void ggml_free(Arena* arena) { delete arena; }

Tensor* ggml_new_tensor_4d(Arena* arena, int32_t type, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t ne[] = {a, b, c, d};
    return make(arena, type, ne, true);
}
Tensor* ggml_add(Arena* arena, Tensor* a, Tensor* b) {
    Tensor* t = make(arena, a->type, a->ne, true);
    t->op = 1;
    t->src[differs("operands") ? 1 : 0] = a;
    t->src[differs("operands") ? 0 : 1] = b;
    return t;
}
Tensor* ggml_scale(Arena* arena, Tensor* a, float factor) {
    Tensor* t = make(arena, a->type, a->ne, true);
    t->op = 2;
    std::memcpy(&t->op_params[differs("parameters") ? 1 : 0], &factor, sizeof factor);
    return t;
}
Tensor* ggml_permute(Arena* arena, Tensor* a, int, int, int, int) {
    const int64_t ne[] = {a->ne[0], a->ne[2], a->ne[1], a->ne[3]};
    Tensor* t = make(arena, a->type, ne, false);
    t->op = 3;
    t->view_src = t->src[0] = a;
    t->data = a->data;
    t->nb[1] = a->nb[2], t->nb[2] = a->nb[1];
    return t;
}

void ggml_compute_forward_flash_attn_ext(const ComputeParams*, Tensor*) {
    __atomic_fetch_add(&fake_ggml_calls, 1, __ATOMIC_RELAXED);
}

// As a graph does it: by a symbol that the loader looks up.
void fake_ggml_compute(const ComputeParams* params, Tensor* t) {
    ComputeParams changed = *params;
    if (differs("threads")) changed.nth = -1;
    ggml_compute_forward_flash_attn_ext(&changed, t);
}
}
