#include "src/attend_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quire {
namespace {

constexpr int kBlock = jit::kBlock;

// Slots past the last key of a block of tokens hold anything: their weights are to be 0, which 0 * NaN is
// not. scales: [groups][kBlockTokens] of the last block.
template <typename Number>
void clear_dead(const AttentionPlan& plan, int64_t live, Number* scales) {
    const int groups = plan.spec.Dv / plan.spec.value_format.quant_group;
    for (int g = 0; g < groups; ++g, scales += kBlockTokens)
        std::fill(scales + live, scales + kBlockTokens, Number());
}
void clear_dead_scales(const AttentionPlan& plan, const RowAddresses& block, float* scales) {
    const int64_t live = block.count % kBlockTokens;
    if (live == 0 || !token_block_info(plan.spec.value_format.type)) return;
    const int64_t of_block = kBlockTokens * (plan.spec.Dv / plan.spec.value_format.quant_group);
    clear_dead(plan, live, scales + block.count / kBlockTokens * of_block);
}

// Of blocks of tokens, where kernels read scales from: a copy of the last block's where not all are alive.
const void* stored_blocks(const AttentionPlan& plan, const RowAddresses& block, const BlockState& s) {
    const quire_format& format = plan.spec.value_format;
    const int64_t codes = token_block_info(format.type)->code_bytes(plan.spec.Dv);
    const int64_t blocks = block.padded() / kBlockTokens, live = block.count % kBlockTokens;
    for (int64_t i = 0; i < blocks; ++i) s.stored_blocks[i] = block.value[i * kBlockTokens] + codes;
    if (live == 0) return s.stored_blocks;
    auto* const last = reinterpret_cast<uint16_t*>(s.scales);
    std::memcpy(last, s.stored_blocks[blocks - 1], size_t(block_bytes(format, plan.spec.Dv) - codes));
    clear_dead(plan, live, last);
    s.stored_blocks[blocks - 1] = reinterpret_cast<const char*>(last);
    return s.stored_blocks;
}

// PV reads the values of a block several times. Rows a multiple of a page apart share so few sets of a small
// second-level cache that they do not stay there (Zen 3: 64 KB a way, 8 ways, for keys as well): they are
// copied. On Zen 5, with 16 ways, the copy takes more than it saves, however far apart they are.
const char* const* near_rows(const AttentionProblem& p, const RowAddresses& block, const BlockState& s) {
    constexpr int64_t kFar = 4096;
    const int64_t bytes = s.copied_bytes;
    if (bytes == 0 || block.side_by_side || p.cache.value.row_stride % kFar != 0) return block.value;
    for (int64_t i = 0; i < block.padded(); ++i) {
        s.value_rows[i] = s.copied_values + i * bytes;
        std::memcpy(s.copied_values + i * bytes, block.value[i], size_t(bytes));
    }
    std::fill_n(s.value_rows + block.padded(), jit::kRowsSoon, s.copied_values);
    return s.value_rows;
}

// Negative scales become their magnitudes, and all others 0. NaN of either sign is one without.
void turn_signs(float* scales, size_t count) {
    for (float* s = scales; s < scales + count; ++s) *s = std::isnan(*s) ? std::abs(*s) : std::max(-*s, 0.f);
}

void add_weighted(const AttentionPlan& plan, const jit::DecodeKernels& kernels, const RowAddresses& block,
                  const char* const* values, int64_t rows, const jit::NextRows& next, const BlockState& s,
                  float* output) {
    const jit::BlockKernels& of_rows = kernels_of(kernels, block);
    const int64_t padded = block.padded();
    const bool blocks = token_block_info(plan.spec.value_format.type) != nullptr;
    const void* const scales = blocks && of_rows.reads_value_scales ? stored_blocks(plan, block, s)
                                                                    : stored(block.value_scale, block);
    uint32_t negative = 0;
    if (kernels.minima)
        kernels.minima(
            {s.scores, s.scales + kernels.minima_at, s.block_factors, s.rescale, output, padded, s.numbers});
    const auto add = [&](const jit::Kernel<jit::WeightsArgs>& weights) {
        weights(
            {s.scores, s.scales, s.weights, s.weight_factors, padded, s.block_factors, &negative, scales});
        of_rows.pv({s.weights, values, s.weight_factors, s.rescale, output, padded, next, s.numbers});
    };
    add(of_rows.weights);
    if (negative == 0) return;
    if (of_rows.reads_value_scales) of_rows.value_scales({block.value_scale, s.scales, padded});
    const int stride = blocks ? plan.spec.Dv / plan.spec.value_format.quant_group : plan.value_scale_stride;
    turn_signs(s.scales, size_t(padded * stride));
    for (int64_t r = 0; r < rows; ++r) s.block_factors[r] *= -1, s.rescale[r] = 1;
    add(kernels.listed.weights);
}

}  // namespace

void make_value_scales(const AttentionPlan& plan, const jit::BlockKernels& of_rows, const RowAddresses& block,
                       const BlockState& s) {
    if (!of_rows.value_scales || of_rows.reads_value_scales) return;
    of_rows.value_scales({block.value_scale, s.scales, block.padded()});
    clear_dead_scales(plan, block, s.scales);
}

void add_values(const AttentionPlan& plan, const AttentionProblem& problem, const jit::DecodeKernels& kernels,
                const RowAddresses& block, int64_t rows, const jit::NextRows& next, const BlockState& s,
                float* output) {
    const jit::BlockKernels& of_rows = kernels_of(kernels, block);
    const char* const* values = near_rows(problem, block, s);
    if (of_rows.weights) return add_weighted(plan, kernels, block, values, rows, next, s, output);
    of_rows.pv({s.scores, values, s.scales, s.rescale, output, block.padded(), next, s.numbers});
}

int64_t copied_value_bytes(const AttentionPlan& plan) {
    const quire_format& format = plan.spec.value_format;
    if (has_large_l2() || token_block_info(format.type)) return 0;
    const int64_t bytes = bytes_of(format.type, plan.spec.Dv);
    return bytes <= 512 ? bytes : 0;
}

}  // namespace quire
