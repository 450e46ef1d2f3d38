#include "jit/merge.h"

#include <algorithm>
#include <cstddef>

#include "jit/emitter.h"

namespace quire::jit {
namespace {

// for d in 0..Dv, eight vectors at a time:
//   acc = 0
//   for s in 0..count: acc += weights[s] * states[s][d]
//   output[d] = acc
class Merge : public Emitter {
public:
    Merge(const Target& target, int dim) : Emitter(target) {
        begin();
        const Gpr states = gpr("states"), weights = gpr("weights"), count = gpr("count"),
                  output = gpr("output"), state = gpr("state"), s = gpr("s");
        mov(states, ptr[args() + offsetof(MergeArgs, states)]);
        mov(weights, ptr[args() + offsetof(MergeArgs, weights)]);
        mov(count, ptr[args() + offsetof(MergeArgs, count)]);
        mov(output, ptr[args() + offsetof(MergeArgs, output)]);
        for (int d = 0; d < dim; d += 8 * lanes()) {
            const int width = std::min(8, (dim - d) / lanes());
            const std::vector<Vec> acc = vecs("acc", width);
            for (const Vec& v : acc) zero(v);
            Label each_state;
            xor_(s, s);
            L(each_state);
            {
                Temp weight(*this, "weight");
                mov(state, ptr[states + s * 8]);
                broadcast(weight, ptr[weights + s * 4]);
                for (int w = 0; w < width; ++w)
                    vfmadd231ps(acc[size_t(w)], *weight, ptr[state + d * 4 + w * vec_bytes()]);
            }
            inc(s);
            cmp(s, count);
            jl(each_state);
            for (int w = 0; w < width; ++w) vmovups(ptr[output + d * 4 + w * vec_bytes()], acc[size_t(w)]);
            free(acc);
        }
        end();
    }
};

}  // namespace

Status generate_merge(const Target& target, int dim, std::vector<uint8_t>* code) {
    return Merge(target, dim).finish(code);
}

}  // namespace quire::jit
