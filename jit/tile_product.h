// What the products with query rows in the lanes have in common.
#pragma once
#include <cstddef>
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/tile_ahead.h"

namespace quire::jit {

// rescaled() with TilePvArgs::rescale in `rescale`, or first() where that is NULL.
template <typename Rescaled, typename First>
void with_rescale(Emitter& e, const Gpr& rescale, const Rescaled& rescaled, const First& first) {
    Label none, done;
    e.mov(rescale, e.ptr[e.args() + offsetof(TilePvArgs, rescale)]);
    e.test(rescale, rescale);
    e.jz(none, e.T_NEAR);
    rescaled();
    e.jmp(done, e.T_NEAR);
    e.L(none);
    first();
    e.L(done);
}

// Inner step: acc[n][w] += element[n] * rows[w]. Each element is broadcast once, and each lane vector loaded
// once, but for the last one where a register less makes room for more accumulators: a load an accumulator.
class TileProduct : public Emitter {
protected:
    // vecs: the panel's width. spare: registers that a multiplication needs. kept: what is kept in registers
    // for each accumulator, itself included.
    TileProduct(const Target& target, int vecs, int spare, int kept = 1)
        : Emitter(target),
          vecs_(vecs),
          kept_(kept),
          loaded_(broadcasts(vecs, spare) < broadcasts(vecs - 1, spare) ? vecs - 1 : vecs),
          n_(broadcasts(loaded_, spare)),
          acc_(Emitter::vecs("acc", n_ * vecs)),
          rows_(Emitter::vecs("rows", loaded_)),
          ahead_(*this, target) {}

    const Vec& acc(int n, int w) const { return acc_[size_t(n * vecs_ + w)]; }
    int panel_bytes() const { return vecs_ * vec_bytes(); }  // one row of the lane operand

    // multiply(acc, element, row), where row is a register or an address.
    template <typename ElementAt, typename Multiply>
    void emit_step(const RegExp& lanes_at, const ElementAt& element_at, const Multiply& multiply) {
        emit_step(acc_, lanes_at, element_at, multiply);
    }

    // The same of other sums: [n][w].
    template <typename ElementAt, typename Multiply>
    void emit_step(const std::vector<Vec>& sums, const RegExp& lanes_at, const ElementAt& element_at,
                   const Multiply& multiply) {
        const auto sum = [&](int n, int w) { return sums[size_t(n * vecs_ + w)]; };
        const auto row_at = [&](int w) { return ptr[lanes_at + w * vec_bytes()]; };
        for (int w = first_; w < loaded_; ++w) vmovups(rows_[size_t(w)], row_at(w));
        for (int n = 0; n < n_; ++n) {
            Temp element(*this, "element");
            broadcast(element, ptr[element_at(n)]);
            for (int w = first_; w < loaded_; ++w) multiply(sum(n, w), element, rows_[size_t(w)]);
            if (loaded_ < vecs_) multiply(sum(n, loaded_), element, row_at(loaded_));
        }
    }

    // The largest scores so far, of which these are the next: adders have nothing else to do here.
    void emit_new_max(const std::vector<Vec>& scores) {
        stage("maximum");
        const Vec& max = rows_[0];  // of no more use
        mov(rax, ptr[args() + offsetof(TileQkArgs, new_max)]);
        for (int w = first_; w < vecs_; ++w) {
            vmovups(max, ptr[rax + w * vec_bytes()]);
            for (int n = 0; n < n_; ++n) vmaxps(max, scores[size_t(n * vecs_ + w)], max);
            vmovups(ptr[rax + w * vec_bytes()], max);
        }
    }

    // sums[n][w] = output[n][w] * TilePvArgs::rescale[w], or 0 where that is NULL.
    template <typename OutputAt>
    void begin_sums(const std::vector<Vec>& sums, const Gpr& rescale, const OutputAt& output_at) {
        with_rescale(
            *this, rescale,
            [&] {
                const Vec& factor = rows_[0];
                for (int w = 0; w < vecs_; ++w) {
                    vmovups(factor, ptr[rescale + w * vec_bytes()]);
                    for (int n = 0; n < n_; ++n)
                        vmulps(sums[size_t(n * vecs_ + w)], factor, ptr[output_at(n, w)]);
                }
            },
            [&] {
                for (const Vec& v : sums) zero(v);
            });
    }

    // The top of a loop that takes most of the time: where it begins a line of code, loops of words are up to
    // 3 % quicker (docs/performance.md).
    void begin_loop(Label& top) {
        align(int(kLineBytes));
        L(top);
    }

    // Lines to go with so many steps.
    void ask_ahead(int steps) { ahead_.some(steps * n_ * vecs_); }

    const int vecs_;
    int first_ = 0;  // vector that steps and maxima begin with

private:
    const int kept_;

    // Broadcast operands a tile: as many as leave registers for all (AVX2 3 x 4 + 3 + 1 = 16), and divide
    // kTileStep and kValuePanel.
    int broadcasts(int loaded, int spare) const {
        for (int n : {8, 4})
            if (n * vecs_ * kept_ + loaded + 1 + spare <= num_vecs()) return n;
        return 2;
    }

protected:
    const int loaded_, n_;
    const std::vector<Vec> acc_, rows_;
    TileAhead ahead_;
};

}  // namespace quire::jit
