// The parts of ggml's binary interface that this library uses, and nothing else of ggml: no header, no
// library.
//
// Source: ggml's include/ggml.h (struct ggml_tensor, struct ggml_init_params, enum ggml_type) and
// src/ggml-cpu/ggml-cpu-impl.h (struct ggml_compute_params), MIT. Range: from 14 August 2025, when
// ggml_compute_forward_flash_attn_ext got its present two parameters (ggml 0.9.0, llama.cpp b6170), to ggml
// 0.26.0; `use_ref` is there since 7 February 2026, where ggml_backend_cpu_set_use_ref is. proof.cc holds
// every field that is used against what the functions of the loaded ggml say, so that a version outside the
// range is either the same or is left alone.
#pragma once
#include <cstddef>
#include <cstdint>

namespace quire_ggml {

constexpr int kMaxDims = 4, kMaxSources = 10, kMaxName = 64, kOpParams = 16;
constexpr int kMaxThreads = 512;

struct Tensor {
    int32_t type;
    void* buffer;
    int64_t ne[kMaxDims];  // elements
    size_t nb[kMaxDims];   // strides in bytes; nb[0] is the size of an element, or of a block of them
    int32_t op;
    int32_t op_params[kOpParams];
    int32_t flags;
    Tensor* src[kMaxSources];
    Tensor* view_src;
    size_t view_offs;
    void* data;
    char name[kMaxName];
    void* extra;
    char padding[8];
};

struct ComputeParams {
    int ith, nth;
    size_t wsize;
    void* wdata;
    void* threadpool;
    bool use_ref;
};

struct InitParams {
    size_t mem_size;
    void* mem_buffer;
    bool no_alloc;
};

// The function that is replaced. Before the range it had four parameters more, which a call that is passed on
// keeps.
using Compute = void (*)(const ComputeParams*, Tensor*, void*, void*, void*, void*);

// Types of ggml that attention reads.
enum Type : int32_t {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ4_1 = 3,
    kQ5_0 = 6,
    kQ5_1 = 7,
    kQ8_0 = 8,
    kIQ4_NL = 20,
    kBF16 = 30
};

}  // namespace quire_ggml
