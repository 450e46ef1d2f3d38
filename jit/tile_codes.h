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
        if (key_.packs_keys) emit_first_packed();
        Label each_tile;
        L(each_tile);
        if (key_.packs_keys)
            emit_packed_at();
        else
            mov(element_, keys_);
        mov(query_, ptr[args() + offsetof(TileQkArgs, query)]);
        mov(scale_, scales_);
        emit_begin();
        emit_turns();
        emit_end();
        if (!key_.packs_keys) add(keys_, n_ * key_.tile_lanes() * 4);
        add(scales_, n_ * key_.scales_stride() * 4);
        add(scores_, n_ * panel_bytes());
        sub(count_, n_);
        jnz(each_tile, T_NEAR);
        ahead_.end(args() + offsetof(TileQkArgs, ahead));
        end();
    }

    // Of so many keys, from the rows that keys_ lists to `room_`.
    virtual void emit_packing(int) {}
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
    const Gpr room_ = key_.packs_keys ? gpr("room") : Gpr();

private:
    int packed_bytes() const { return n_ * key_.tile_lanes() * 4; }  // of a step of keys

    void emit_packed(int keys) {
        emit_packing(keys);
        add(keys_, keys * int(sizeof(const char*)));
        add(room_, keys * key_.tile_lanes() * 4);
    }
    void emit_first_packed() {
        mov(room_, ptr[args() + offsetof(TileQkArgs, packed)]);
        emit_packed(n_);
    }
    // Keys that were packed while the step before was multiplied, and room for those of the next: two rooms
    // by turns. In the last step its own keys are packed once more.
    void emit_packed_at() {
        Label other, more;
        lea(element_, ptr[room_ - packed_bytes()]);
        mov(room_, ptr[args() + offsetof(TileQkArgs, packed)]);
        cmp(element_, room_);
        jne(other);
        add(room_, packed_bytes());
        L(other);
        cmp(count_, n_);
        jne(more);
        sub(keys_, n_ * int(sizeof(const char*)));
        L(more);
    }

    void emit_turns() {
        const int whole = key_.dim / turn();
        int packing = 0, keys = 1;  // turns that pack so many keys each
        if (key_.packs_keys && whole > 0) {
            while (keys * whole < n_) keys *= 2;
            packing = n_ / keys;
        }
        emit_loop(packing, keys);
        emit_loop(whole - packing, 0);
        if (key_.packs_keys && whole == 0) emit_packed(n_);
        emit_elements(key_.dim % turn());
    }

    void emit_loop(int turns, int packed_keys) {
        if (turns == 0) return;
        Label each;
        mov(left_, turns);
        begin_loop(each);
        if (packed_keys > 0) emit_packed(packed_keys);
        emit_elements(turn());
        emit_next();
        dec(left_);
        jnz(each, T_NEAR);
    }

    const Gpr scales_ = gpr("scales"), scores_ = gpr("scores"), count_ = gpr("count"), left_ = gpr("left");
};

}  // namespace quire::jit
