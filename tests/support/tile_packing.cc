#include "tests/support/tile_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/run.h"

namespace quire::test {

TilePacking::TilePacking(const jit::RowKey& key, const jit::RowKey& value, bool few, std::string name,
                         Flush flush)
    : key_(key), value_(value), few_(few), name_(std::move(name)), flush_(flush) {
    jit::CodeCache& cache = test_code_cache();
    const Status made = few ? make_few_pack_kernels(cache, key, value, &kernels_)
                            : make_pack_kernels(cache, key, value, &kernels_);
    EXPECT_TRUE(made.ok()) << name_;
}

TilePacking::Packed TilePacking::pack(const KernelRows& key_source, const KernelRows& value_source, int first,
                                      int count, const Surroundings& around, jit::LinesAhead* ahead) const {
    const int padded = padded_keys(count);
    const auto address = [](const GuardedBuffer& b) { return b.as<const char*>(); };
    const auto floats = [&](size_t n) { return array(n, around.scratch, flush_); };
    Packed tile{floats(size_t(padded * key_.tile_lanes())),
                floats(size_t(value_panels() * panel_stride())),
                floats(size_t(key_.scales_floats(padded))),
                floats(size_t(value_.scales_floats(padded))),
                {},
                key_source.rows(first, count, padded)};
    const int values = value_pairs() || few_ ? padded : count;
    tile.value_rows = value_source.rows(first, count, values);
    const GuardedBuffer key_scales = key_source.scales(first, count, padded),
                        value_scales = value_source.scales(first, count, padded);
    if (kernels_.key_scales)
        poisoned_call<jit::ScalesArgs>(
            kernels_.key_scales, {address(key_scales), tile.key_scales.as<float>(), padded}, around.entry);
    if (kernels_.keys)
        poisoned_call<jit::PackArgs>(
            kernels_.keys,
            {address(tile.key_rows), tile.key_scales.as<float>(), tile.keys.as<float>(), padded, ahead},
            around.entry);
    if (kernels_.value_scales)
        poisoned_call<jit::ScalesArgs>(kernels_.value_scales,
                                       {address(value_scales), tile.value_scales.as<float>(), padded},
                                       around.entry);
    if (kernels_.values)
        poisoned_call<jit::PackArgs>(
            kernels_.values,
            {address(tile.value_rows), tile.value_scales.as<float>(), tile.values.as<float>(), values, ahead},
            around.entry);
    return tile;
}

// Whole vectors are stored: panels of the padded row.
int TilePacking::panel_stride() const {
    return value_.bytes() ? jit::kFourPanelStride : value_pairs() ? jit::kPairPanelStride : jit::kPanelStride;
}

GuardedBuffer TilePacking::relate(GuardedBuffer& scales, int count, Entry entry) const {
    const std::vector<uint8_t> before = scales.bytes();
    const int run = value_.bytes() ? jit::kWeightRun : count, groups = value_.groups();
    GuardedBuffer tops = array(size_t(count / run * groups), NAN, flush_);
    poisoned_call<jit::TileScalesArgs>(kernels_.relate, {scales.as<float>(), tops.as<float>(), count}, entry);
    const auto at = [&](int t, int g) { return size_t(t * value_.scales_stride() + g); };
    for (int t = 0; t < count; ++t)
        for (int g = 0; g < groups; ++g) {
            const auto scale = [&](int i) { return reinterpret_cast<const float*>(before.data())[at(i, g)]; };
            float top = 0;
            for (int i = t / run * run; i < (t / run + 1) * run; ++i)
                top = std::max(top, std::fabs(scale(i)));
            EXPECT_EQ(tops.as<float>()[t / run * groups + g], top) << name_;
            if (value_.bytes())
                EXPECT_NEAR(scales.as<int16_t>()[2 * at(t / 2 * 2, g) + size_t(t % 2)],
                            std::fabs(scale(t)) / top * jit::kScaleOfOne, .51)
                    << name_ << " g" << g << " t" << t;
            else
                EXPECT_NEAR(scales.as<float>()[at(t, g)], scale(t) / top, 2e-7)
                    << name_ << " g" << g << " t" << t;
        }
    return tops;
}

}  // namespace quire::test
