#include "jit/pack_amx.h"

namespace quire::jit {
namespace {

// Quarter i of v: 16 bytes at `at` + i * stride.
void load_quarters(Emitter& e, const Vec& v, const RegExp& at, int stride) {
    const Xbyak::Zmm z(v.getIdx());
    e.vmovups(Xbyak::Xmm(v.getIdx()), e.ptr[at]);
    for (int i = 1; i < 4; ++i) e.vinserti32x4(z, z, e.ptr[at + i * stride], uint8_t(i));
}

}  // namespace

// The first half of a transposition are loads of quarters, which take none of the pipe of permutations.
void turn_value_blocks(Emitter& e, const Gpr& tile, int tiles, const Gpr& blocks) {
    constexpr int kBlockBytes = kAmxPairs * 64;
    const std::vector<Vec> v = e.vecs("turned", kAmxRows);
    Label each;
    e.L(each);
    for (int i = 0; i < tiles; ++i) {
        const RegExp at = tile + i * kAmxValueStride * 4;
        // Of four pairs, each the fourth behind the one before, the same four values.
        for (int four = 0; four < 4; ++four)
            for (int pair = 0; pair < 4; ++pair)
                load_quarters(e, v[size_t(4 * four + pair)], at + pair * 64 + four * 16, 4 * 64);
        for (size_t four = 0; four < 4; ++four)
            e.transpose_dwords({v.begin() + 4 * four, v.begin() + 4 * four + 4});
        for (int row = 0; row < kAmxRows; ++row) e.vmovups(e.ptr[at + row * 64], v[size_t(row)]);
    }
    e.add(tile, kBlockBytes);
    e.dec(blocks);
    e.jnz(each, Emitter::T_NEAR);
    e.free(v);
}

}  // namespace quire::jit
