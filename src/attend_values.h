// Decode: what the values of a block add to the outputs of an item.
#pragma once
#include "src/attend_blocks.h"

namespace quire {

// Scratch of a block of keys that its values take, too.
struct BlockState {
    float* scores;                   // [R][kBlock], then probabilities
    float* scales;                   // [kBlock][scale stride], of the keys, then of the values
    float *rescale, *block_factors;  // [R] as jit::SoftmaxArgs
    float* numbers;                  // as jit::QkArgs
    int16_t* weights;                // as jit::WeightsArgs
    float* weight_factors;           // as well
    int64_t copied_bytes;            // of a value row: copied_value_bytes
    char* copied_values;             // [kBlock] rows of a block that are copied
    const char** value_rows;         // [kBlock + kRowsSoon] addresses of those
    const char** stored_blocks;      // [kBlock / kBlockTokens] as jit::WeightsArgs::stored_scales
};

// The values' scales as numbers, where kernels of a block like this take such.
void make_value_scales(const AttentionPlan& plan, const jit::BlockKernels& of_rows, const RowAddresses& block,
                       const BlockState& s);
// output += probabilities of so many query rows * values.
void add_values(const AttentionPlan& plan, const AttentionProblem& problem, const jit::DecodeKernels& kernels,
                const RowAddresses& block, int64_t rows, const jit::NextRows& next, const BlockState& s,
                float* output);

}  // namespace quire
