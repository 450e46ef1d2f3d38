// What makes kernels, or finds them in the cache: shared by jit/kernels*.cc.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "jit/kernels.h"
#include "jit/scales.h"

namespace quire::jit {

template <typename Args, typename Generate>
Status make(CodeCache& cache, const std::string& name, const Generate& generate, Kernel<Args>* kernel) {
    std::shared_ptr<const Code> code;
    QUIRE_TRY(cache.get(name, generate, &code));
    *kernel = Kernel<Args>(std::move(code));
    return {};
}

inline Status make_scales(CodeCache& cache, RowKey key, Kernel<ScalesArgs>* kernel) {
    if (key.groups() == 0) return {};
    key.rows = 0;
    return make(
        cache, key.name("scales"), [&](auto* code) { return generate_scales(key, code); }, kernel);
}

Status make_amx_tiles(CodeCache& cache, const Target& target, AmxTiles* tiles);

// Of float products.
inline RowKey plain(RowKey key) {
    key.products = Products::floats;
    return key;
}

}  // namespace quire::jit
