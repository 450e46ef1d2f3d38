// Makes tensors through ggml's exported functions and compares every field that is used with what ggml says
// of it. Only functions are called whose parameters have not changed for years: a wrong guess here would be a
// crash.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "host.h"
#include "types.h"

namespace quire_ggml {
namespace {

struct Context;  // ggml_context

// By the names of ggml's functions.
struct Functions {
    const char* (*type_name)(int32_t);
    const char* (*op_name)(int32_t);
    size_t (*type_size)(int32_t);
    int64_t (*blck_size)(int32_t);
    size_t (*row_size)(int32_t, int64_t);
    size_t (*nbytes)(const Tensor*);
    int64_t (*nelements)(const Tensor*);
    size_t (*tensor_overhead)();
    const char* (*get_name)(const Tensor*);
    void* (*get_data)(const Tensor*);
    Context* (*init)(InitParams);
    void (*free)(Context*);
    Tensor* (*new_tensor_4d)(Context*, int32_t, int64_t, int64_t, int64_t, int64_t);
    Tensor* (*permute)(Context*, Tensor*, int, int, int, int);
    Tensor* (*add)(Context*, Tensor*, Tensor*);
    Tensor* (*scale)(Context*, Tensor*, float);
    Tensor* (*set_name)(Tensor*, const char*);
};

template <typename Function>
bool find(void* handle, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle, name));
    return *function != nullptr;
}

// The name of a function that is not exported, or null.
const char* find_all(void* handle, Functions* f) {
#define QUIRE_FIND(name) \
    if (!find(handle, "ggml_" #name, &f->name)) return "ggml_" #name " is not exported"
    QUIRE_FIND(type_name);
    QUIRE_FIND(op_name);
    QUIRE_FIND(type_size);
    QUIRE_FIND(blck_size);
    QUIRE_FIND(row_size);
    QUIRE_FIND(nbytes);
    QUIRE_FIND(nelements);
    QUIRE_FIND(tensor_overhead);
    QUIRE_FIND(get_name);
    QUIRE_FIND(get_data);
    QUIRE_FIND(init);
    QUIRE_FIND(free);
    QUIRE_FIND(new_tensor_4d);
    QUIRE_FIND(permute);
    QUIRE_FIND(add);
    QUIRE_FIND(scale);
    QUIRE_FIND(set_name);
#undef QUIRE_FIND
    return nullptr;
}

#define QUIRE_HOLDS(condition, text) \
    if (!(condition)) return text

const char* check_types(const Functions& f) {
    for (const TypeInfo& info : kTypes) {
        const char* name = f.type_name(info.type);
        QUIRE_HOLDS(name != nullptr && std::strcmp(name, info.name) == 0, "the numbers of its types differ");
        QUIRE_HOLDS(f.blck_size(info.type) == info.elements && f.type_size(info.type) == info.bytes &&
                        f.row_size(info.type, 96) == size_t(96 / info.elements) * info.bytes,
                    "the sizes of its types differ");
    }
    return nullptr;
}

// The operator by its name: it has another number in another version.
int32_t find_op(const Functions& f, const char* wanted) {
    for (int32_t op = 0; op < 256; ++op) {
        const char* name = f.op_name(op);
        if (name == nullptr) return -1;
        if (std::strcmp(name, wanted) == 0) return op;
        if (std::strcmp(name, "COUNT") == 0) return -1;
    }
    return -1;
}

// ggml keeps its own header of 32 bytes in front of each tensor.
constexpr size_t kObjectBytes = 32;

const char* check_tensors(const Functions& f, Context* context) {
    const int64_t ne[kMaxDims] = {64, 3, 5, 7};
    for (const TypeInfo& info : kTypes) {
        Tensor* t = f.new_tensor_4d(context, info.type, ne[0], ne[1], ne[2], ne[3]);
        QUIRE_HOLDS(t != nullptr, "no tensor could be made");
        size_t bytes = size_t(ne[0] / info.elements) * info.bytes;
        QUIRE_HOLDS(t->type == info.type && t->nb[0] == info.bytes, "a tensor's type is elsewhere");
        for (int i = 0; i < kMaxDims; ++i) QUIRE_HOLDS(t->ne[i] == ne[i], "a tensor's shape is elsewhere");
        for (int i = 1; i < kMaxDims; ++i) {
            QUIRE_HOLDS(t->nb[i] == bytes, "a tensor's strides are elsewhere");
            bytes *= size_t(ne[i]);
        }
        QUIRE_HOLDS(f.nbytes(t) == bytes && f.nelements(t) == 64 * 3 * 5 * 7, "a tensor's size differs");
        QUIRE_HOLDS(t->data == f.get_data(t) && t->data != nullptr, "a tensor's data is elsewhere");
        QUIRE_HOLDS(t->name == f.get_name(t), "a tensor's name is elsewhere");
    }
    return nullptr;
}

const char* check_operands(const Functions& f, Context* context) {
    Tensor* a = f.new_tensor_4d(context, kF32, 64, 3, 5, 1);
    Tensor* b = f.new_tensor_4d(context, kF32, 64, 3, 5, 1);
    Tensor* sum = f.add(context, a, b);
    QUIRE_HOLDS(sum->op == find_op(f, "ADD"), "a tensor's operator is elsewhere");
    QUIRE_HOLDS(a->op == find_op(f, "NONE"), "a tensor's operator is elsewhere");
    QUIRE_HOLDS(sum->src[0] == a && sum->src[1] == b, "a tensor's operands are elsewhere");
    for (int i = 2; i < kMaxSources; ++i) QUIRE_HOLDS(sum->src[i] == nullptr, "a tensor has other operands");
    Tensor* scaled = f.scale(context, a, 1.25f);
    float factor = 0;
    std::memcpy(&factor, scaled->op_params, sizeof factor);
    QUIRE_HOLDS(factor == 1.25f, "an operator's parameters are elsewhere");
    Tensor* view = f.permute(context, a, 0, 2, 1, 3);
    QUIRE_HOLDS(view->view_src == a && view->data == a->data && view->src[0] == a &&
                    view->nb[1] == a->nb[2] && view->nb[2] == a->nb[1] && view->ne[1] == 5 &&
                    view->ne[2] == 3,
                "a view is laid out otherwise");
    return nullptr;
}

}  // namespace

Proof prove(void* handle) {
    Proof proof;
    Functions f = {};
    if ((proof.difference = find_all(handle, &f)) != nullptr) return proof;
    if ((proof.difference = check_types(f)) != nullptr) return proof;
    if (f.tensor_overhead() != sizeof(Tensor) + kObjectBytes) {
        proof.difference = "the size of its tensors differs";
        return proof;
    }
    proof.op = find_op(f, "FLASH_ATTN_EXT");
    if (proof.op < 0) {
        proof.difference = "it has no operator FLASH_ATTN_EXT";
        return proof;
    }
    constexpr size_t kMemory = size_t(1) << 20;
    const std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::calloc(1, kMemory)),
                                                        std::free);
    Context* context = memory ? f.init({kMemory, memory.get(), false}) : nullptr;
    if (context == nullptr) {
        proof.difference = "no context could be made";
        return proof;
    }
    proof.difference = check_tensors(f, context);
    if (proof.difference == nullptr) proof.difference = check_operands(f, context);
    f.free(context);
    proof.has_use_ref = dlsym(handle, "ggml_backend_cpu_set_use_ref") != nullptr;
    return proof;
}

}  // namespace quire_ggml
