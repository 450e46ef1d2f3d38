// Scores of keys that are integer codes, with query rows in the lanes: what words and bytes have in common.
#pragma once
#include <cstddef>

#include "jit/args.h"
#include "jit/kernel_key.h"
#include "jit/tile_product.h"

namespace quire::jit {

// for key in 0..count step n:
//   scores[key + n][w] = 0                                                        emit_begin
//   for each turn of the row's elements: add what they are to the scores          emit_elements
//   what is left to do with the scores, and new_max of them                       emit_end
//
// Groups, and the chunks in which codes lie in a packed key, fit together in turns of a loop.
class TileQkCodes : public TileProduct {
protected:
    // spare, kept: as TileProduct.
    TileQkCodes(const RowKey& key, int spare, int kept = 1)
        : TileProduct(*key.target, key.rows, spare, kept), key_(key) {}

    void generate() {
        begin();
        mov(keys_, ptr[args() + offsetof(TileQkArgs, keys)]);
        mov(scales_, ptr[args() + offsetof(TileQkArgs, scales)]);
        mov(scores_, ptr[args() + offsetof(TileQkArgs, scores)]);
        mov(count_, ptr[args() + offsetof(TileQkArgs, count)]);
        ahead_.begin(args() + offsetof(TileQkArgs, ahead));
        Label each_tile;
        L(each_tile);
        mov(element_, keys_);
        if (key_.packs_keys) {
            mov(element_, ptr[args() + offsetof(TileQkArgs, packed)]);
            emit_packing();
        }
        mov(query_, ptr[args() + offsetof(TileQkArgs, query)]);
        mov(scale_, scales_);
        emit_begin();
        emit_turns();
        emit_end();
        add(keys_, n_ * (key_.packs_keys ? int(sizeof(const char*)) : key_.tile_lanes() * 4));
        add(scales_, n_ * key_.scales_stride() * 4);
        add(scores_, n_ * panel_bytes());
        sub(count_, n_);
        jnz(each_tile, T_NEAR);
        ahead_.end(args() + offsetof(TileQkArgs, ahead));
        end();
    }

    // From rows to where element_ points. Clobbers query_.
    virtual void emit_packing() {}
    virtual int turn() const = 0;  // elements
    // What begins a key's scores. These are in memory, where a subclass does not keep them in registers.
    virtual void emit_begin() {
        Temp none(*this, "none");
        zero(none);
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[score_at(n, w)], *none);
    }
    // The first `count` from where query_, element_ and scale_ point to.
    virtual void emit_elements(int count) = 0;
    virtual void emit_next() = 0;  // pointers to the next turn
    virtual void emit_end() = 0;
    // scores[key + n][w] *= factors[w]; new_max[w] = max(new_max[w], that)
    void emit_factors() {
        stage("factors");
        mov(rax, ptr[args() + offsetof(TileQkArgs, factors)]);
        for (int w = 0; w < vecs_; ++w) {
            Temp factor(*this, "factor");
            vmovups(factor, ptr[rax + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) {
                vmulps(acc(n, w), factor, ptr[score_at(n, w)]);
                vmovups(ptr[score_at(n, w)], acc(n, w));
            }
        }
        emit_new_max(acc_);
    }

    // A key's scale of a group, NaN for Inf.
    void load_scale(const Vec& v, int n, int group) {
        broadcast(v, ptr[scale_ + (n * key_.scales_stride() + group) * 4]);
    }

    RegExp score_at(int n, int w) const { return scores_ + n * panel_bytes() + w * vec_bytes(); }

    const RowKey key_;
    const Gpr query_ = gpr("query"), element_ = gpr("element"), scale_ = gpr("scale"), keys_ = gpr("keys");

private:
    void emit_turns() {
        const int whole = key_.dim / turn();
        if (whole > 0) {
            Label each;
            mov(left_, whole);
            begin_loop(each);
            emit_elements(turn());
            emit_next();
            dec(left_);
            jnz(each, T_NEAR);
        }
        emit_elements(key_.dim % turn());
    }

    const Gpr scales_ = gpr("scales"), scores_ = gpr("scores"), count_ = gpr("count"), left_ = gpr("left");
};

}  // namespace quire::jit
