// Rows of a tile of keys that lie in blocks of tokens, taken out of them for kernels that read rows.
#pragma once
#include "src/attend.h"

namespace quire {

class TakenRows {
public:
    // Scratch for the rows of one side of a cache; 0 where the cache has rows.
    static size_t floats(const quire_format& format, int dim);
    TakenRows() = default;
    TakenRows(size_t floats, Scratch& scratch);

    // The lists of `rows` and `scales`, at least padded() entries, come to be of rows instead of blocks.
    void take(const jit::Kernel<jit::TokenRowsArgs>& kernel, const quire_format& format, int dim,
              const RowAddresses& block, const char* const** rows, const char* const** scales);

private:
    const char **rows_ = nullptr, **scales_ = nullptr;  // [kTileKeys]
    char* bytes_ = nullptr;
};

}  // namespace quire
