// Packing a tile of keys and values (src/attend_tiles.cc: pack_tile), every array of exactly the length that
// jit/args.h states, registers poisoned.
#pragma once
#include <string>

#include "jit/kernels.h"
#include "tests/support/kernel_rows.h"

namespace quire::test {

class TilePacking {
public:
    // few: as jit::make_few_pack_kernels packs. name: of the setup, for failures.
    TilePacking(const jit::RowKey& key, const jit::RowKey& value, bool few, std::string name, Flush flush);

    const jit::PackKernels& kernels() const { return kernels_; }
    int panel_values() const { return value_.bytes() ? jit::kFourPanel : jit::kValuePanel; }
    int value_panels() const { return value_.padded() / panel_values(); }

    // What a kernel writes, and the next one reads.
    struct Packed {
        GuardedBuffer keys, values, key_scales, value_scales, value_rows, key_rows;
    };
    // Of `count` rows from `first` on.
    Packed pack(const KernelRows& key_source, const KernelRows& value_source, int first, int count,
                const Surroundings& around, jit::LinesAhead* ahead) const;
    // Scales relative to the largest of their group, which it returns: of all keys, or of runs of them.
    GuardedBuffer relate(GuardedBuffer& scales, int count, Entry entry) const;

private:
    bool value_pairs() const { return value_.products != jit::Products::floats; }
    int panel_stride() const;

    const jit::RowKey key_, value_;
    const bool few_;
    const std::string name_;
    const Flush flush_;
    jit::PackKernels kernels_;
};

}  // namespace quire::test
