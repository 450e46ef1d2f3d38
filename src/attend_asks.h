// What decode asks memory for before it reads it (docs/performance.md, "From DRAM"): its kernels ask for the
// next rows all through their work, and between them attend_rows for a few lines.
#pragma once
#include <cstdint>

#include "src/attend_blocks.h"

namespace quire {

// Of one side of the cache.
struct AskedRows {
    bool near;            // jit::NextRows
    int64_t bytes;        // of a row, or of a block of tokens
    int64_t lines, step;  // of memory, of tokens, of each
};

// What the kernels of an item ask for.
struct Asks {
    AskedRows keys, values;
    bool same_rows;
    bool of_places;       // lines of several places at a time: on Intel's cores (jit/prefetch.h)
    AskedHalves* halves;  // lists that are made for them
};
void set_asked_rows(const AttentionPlan& plan, const AttentionProblem& p, Asks* asks);

// Of a block, while another one is read: what QK and what PV ask for, and what is asked for before them.
class BlockAsks {
public:
    BlockAsks(const AttentionPlan& plan, const AttentionProblem& p, const Asks& asks,
              const jit::DecodeKernels& kernels, const RowAddresses& block, const RowAddresses& next,
              int64_t rows);

    const jit::NextRows& of_qk() const { return of_qk_; }
    const jit::NextRows& of_pv() const { return of_pv_; }
    void before_qk() const;
    void before_softmax() const;
    void before_pv() const;

private:
    const Asks& asks_;
    const RowAddresses &block_, &next_;
    const jit::Placement placement_;
    bool by_page_;
    jit::NextRows of_qk_, of_pv_;
};

// Lines that are written when an item ends, and read when the next one begins.
void prefetch_states(const AttentionPlan& plan, const Item& item, const States& states);
void prefetch_outputs(const AttentionPlan& plan, const AttentionProblem& p, const Item& item);
void prefetch_queries(const AttentionPlan& plan, const AttentionProblem& p, const Item& item);

}  // namespace quire
