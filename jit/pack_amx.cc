#include "jit/pack_amx.h"

namespace quire::jit {

// Of two vectors, each with eight elements of two pairs: first four elements of four pairs, then the others;
// of four such vectors, an element's pairs side by side.
void turn_value_blocks(Emitter& e, const Gpr& tile, int panels, const Gpr& blocks) {
    constexpr int kVectors = 8, kBytes = 64;
    const std::vector<Vec> v = e.vecs("pairs", kVectors), t = e.vecs("turned", kVectors);
    const std::vector<Vec> order = e.vecs("order", 2);
    for (int half = 0; half < 2; ++half) {
        std::vector<uint32_t> index;
        for (uint32_t element = 0; element < 4; ++element)
            for (uint32_t pair = 0; pair < 4; ++pair)
                index.push_back(pair * 8 + uint32_t(4 * half) + element);
        e.vmovups(order[size_t(half)], e.constant(index));
    }
    Label each;
    e.L(each);
    for (int panel = 0; panel < panels; ++panel) {
        const RegExp at = tile + panel * kPairPanelStride * 4;
        for (size_t i = 0; i < kVectors; ++i) e.vmovups(v[i], e.ptr[at + int(i) * kBytes]);
        for (size_t quad = 0; quad < 4; ++quad)
            for (size_t half = 0; half < 2; ++half) {
                const Vec& to = t[half * 4 + quad];
                e.vmovaps(to, order[half]);
                e.vpermi2d(to, v[2 * quad], v[2 * quad + 1]);
            }
        for (size_t half = 0; half < 2; ++half) {
            const std::vector<Vec> four(t.begin() + half * 4, t.begin() + half * 4 + 4);
            e.transpose_quarters(four);
            for (size_t i = 0; i < four.size(); ++i)
                e.vmovups(e.ptr[at + int(half * 4 + i) * kBytes], four[i]);
        }
    }
    e.add(tile, kVectors * kBytes);
    e.dec(blocks);
    e.jnz(each, Emitter::T_NEAR);
    e.free(v);
    e.free(t);
    e.free(order);
}

}  // namespace quire::jit
