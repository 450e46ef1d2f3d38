// Run with libquire_ggml loaded first: the calls of a ggml as expected are taken over after the first, and
// those of one that differs anywhere are all its own. argv[1]: "taken" or "left".
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "integrations/ggml/layout.h"

using namespace quire_ggml;

extern "C" {
extern int fake_ggml_calls;
void fake_ggml_compute(const ComputeParams* params, Tensor* t);
}

namespace {

constexpr int kThreads = 3, kCalls = 4;
constexpr int64_t kDim = 8, kKeys = 5;

Tensor dense(float* data, int64_t rows) {
    Tensor t = {};
    t.type = kF32;
    t.data = data;
    const int64_t ne[] = {kDim, rows, 1, 1};
    size_t bytes = sizeof(float);
    for (int i = 0; i < kMaxDims; ++i) {
        t.ne[i] = ne[i];
        t.nb[i] = bytes;
        bytes *= size_t(ne[i]);
    }
    return t;
}

// All threads, then the end of all, as between two nodes of a graph.
void compute(Tensor* t) {
    std::vector<std::thread> threads;
    for (int ith = 0; ith < kThreads; ++ith)
        threads.emplace_back([=] {
            const ComputeParams params = {ith, kThreads, 0, nullptr, nullptr, false};
            fake_ggml_compute(&params, t);
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
    const bool taken = argc == 2 && std::strcmp(argv[1], "taken") == 0;
    // Equal keys: the result is the mean of the values.
    float query[kDim], keys[kKeys * kDim], values[kKeys * kDim], result[kDim] = {};
    for (int64_t i = 0; i < kKeys * kDim; ++i) {
        keys[i] = 1;
        values[i] = float(i / kDim);
        query[i % kDim] = 0.5f;
    }
    Tensor q = dense(query, 1), k = dense(keys, kKeys), v = dense(values, kKeys), out = dense(result, 1);
    const float parameters[3] = {0.25f, 0, 0};
    out.op = 4;
    std::memcpy(out.op_params, parameters, sizeof parameters);
    out.src[0] = &q, out.src[1] = &k, out.src[2] = &v;
    for (int i = 0; i < kCalls; ++i) compute(&out);
    const int own = taken ? kThreads : kThreads * kCalls;
    const float wanted = taken ? 2.f : 0.f;
    if (fake_ggml_calls == own && std::fabs(result[0] - wanted) < 1e-6f &&
        std::fabs(result[kDim - 1] - wanted) < 1e-6f)
        return 0;
    std::fprintf(stderr, "%d calls of ggml's own, %d expected; result %g, %g expected\n", fake_ggml_calls,
                 own, double(result[0]), double(wanted));
    return 1;
}
