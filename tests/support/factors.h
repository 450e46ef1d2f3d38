// The factors of the sweeps over quire_attention: formats, head sizes, lengths, layouts, options.
#pragma once
#include "tests/support/cover.h"

namespace quire::test {

// Each adds factors to `cover`; the lists are in factors.cc.
void add_formats(Cover* cover);     // of key, of value, of query and output
void add_head_sizes(Cover* cover);  // D, Dv; heads
void add_lengths(Cover* cover);     // query tokens, keys; other sequences in the batch
void add_layouts(Cover* cover);     // placement, strides, guard pages
void add_options(Cover* cover);     // masks, sinks, soft cap, window, causal, ALiBi, decoding batches, lse

// Puts right what factors cannot say alone (groups that divide, int4 of even sizes) and keeps the case within
// so many multiplications. False where it cannot be.
bool fit(Case* c, double most_multiplications);

}  // namespace quire::test
