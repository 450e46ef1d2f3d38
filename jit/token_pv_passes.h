// Decode over values in blocks of tokens: output rows += probabilities * values. The frame of the kernel; the
// arithmetic is a subclass's.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/token_codes.h"
#include "jit/token_prefetch.h"

namespace quire::jit {

// The lanes are elements. For each pass over W vectors of them:                       emit_pass
//   acc[r][w] = what is there before the first block                                  emit_begin
//   for each block:
//     prefetch the pass's share of the next block
//     for each dword of N tokens, or several, for r: acc[r][w] += weights * codes     emit_tokens
//   output[r][w] = what acc[r][w] makes of it                                         emit_end
class TokenPvPasses : public Emitter {
protected:
    struct Pass {
        int row, rows, vec, width;
    };

    explicit TokenPvPasses(const RowKey& key)
        : Emitter(*key.target), key_(key), codes_(*this, key.format), prefetch_(*this, key) {}
    void generate();

    virtual void emit_kept() {}  // what is in registers all through
    // Of query rows at once.
    virtual int most_rows() const = 0;
    virtual int widest(int rows) const = 0;  // W
    virtual void hold(int /*rows*/, int /*width*/) {}
    virtual int sums() const { return 1; }           // registers of acc for each row and vector
    virtual int dwords_a_turn() const { return 1; }  // of tokens, in emit_tokens
    // From a turn's weights to the next one's.
    virtual int weights_step() const = 0;
    virtual int weights_of_block() const { return turns() * weights_step(); }  // from one to the next
    // At scales_, four bytes a token: of each block, and where the first ones are.
    virtual bool takes_scales() const { return false; }
    virtual size_t scales_arg() const { return 0; }
    virtual int scales_of_block() const { return 0; }
    // Whether emit_tokens itself asks, by emit_asks.
    virtual bool asks_within() const { return false; }
    // Of the lines of a pass, those of so many turns more: what emit_end asks for, by emit_last_asks.
    virtual int turns_of_end() const { return 0; }
    virtual void emit_begin(const std::vector<Vec>& acc, const Pass& pass) = 0;
    virtual void emit_tokens(const std::vector<Vec>& acc, const Pass& pass) = 0;
    virtual void emit_end(const std::vector<Vec>& acc, const Pass& pass) = 0;

    int turns() const { return kBlockTokens / codes_.of_dword() / dwords_a_turn(); }  // of a block

    // Share `part` of `parts` of what a turn that is a block asks for.
    void emit_asks(const Pass& pass, int part, int parts);
    void emit_last_asks(int part, int parts) { prefetch_.ask(last_asked_, part, parts); }

    RegExp output_at(int row, int vec) const { return output_ + (row * key_.padded() + vec * lanes()) * 4; }
    // Of the elements of half a vector; padding repeats the last.
    int group_of(int vec, int half) const {
        const int element = vec * lanes() + half * lanes() / 2;
        return std::min(element, key_.dim - 1) / scale_group(key_.format);
    }
    // Whether vector `vec` + w has the groups of the one before.
    bool same_groups(int vec, int w) const {
        return w > 0 && group_of(vec + w, 0) == group_of(vec + w - 1, 0) &&
               group_of(vec + w, 1) == group_of(vec + w - 1, 1);
    }

    const RowKey key_;
    const TokenCodes codes_;

private:
    void emit_rows(int row, int rows);
    void emit_pass(const Pass& pass, int index, int passes);
    void emit_own_ahead(const Pass& pass, int part, int parts);

    TokenPrefetch prefetch_;
    TokenPrefetch::Share asked_, last_asked_;  // of the next blocks, with each block; at the end of the pass

protected:
    const Gpr output_ = gpr("output"), rescale_ = gpr("rescale"), weights_ = gpr("weights"),
              blocks_ = gpr("blocks"), count_ = gpr("count"), block_ = gpr("block"),
              dwords_ = gpr("dwords left"), scales_ = gpr("scales");
};

}  // namespace quire::jit
