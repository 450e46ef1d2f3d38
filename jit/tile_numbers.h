// What the products of numbers in the lanes have in common, and QK of them without its loop over keys.
#pragma once
#include <cstddef>
#include <vector>

#include "jit/tile_product.h"
#include "jit/tile_products.h"

namespace quire::jit {

// A step multiplies a number, or a pair of them: acc[n][w] += element.low * row.low + element.high *
// row.high.
class TileNumbers : public TileProduct {
protected:
    static constexpr int kUnroll = 8;

    explicit TileNumbers(const TileKey& key)
        : TileProduct(*key.target, key.vecs, 0),
          key_(key),
          steps_a_line_(steps_a_line()),
          odd_(Emitter::vecs("acc of odd steps", key.vecs == 1 && key.target->vector_bits == 512 ? n_ : 0)) {}

    // Step i. One vector of query rows has too few sums for the latency of products (Zen 5: six cycles of
    // bfloat16 numbers, where eight sums take four): odd steps have sums of their own.
    template <typename ElementAt>
    void emit_numbers(int i, const RegExp& lanes_at, const ElementAt& element_at) {
        emit_step(i % 2 != 0 && !odd_.empty() ? odd_ : acc_, lanes_at, element_at,
                  [&](const Vec& sum, const Vec& element, const Xbyak::Operand& row) {
                      key_.bfloats() ? dot_bfloats(sum, element, row) : vfmadd231ps(sum, element, row);
                  });
        if (i % steps_a_line_ == steps_a_line_ - 1) ahead_.line();
    }
    void clear_odd() {
        for (const Vec& v : odd_) zero(v);
    }
    void add_odd() {
        for (size_t i = 0; i < odd_.size(); ++i) vaddps(acc_[i], acc_[i], odd_[i]);
    }

    // body() for the keys that all vectors see, then for those that all but the first one see, and so on
    // (SeenKeys): how many are in `count`, and are not 0; first_ is the first vector that sees them.
    template <typename Body>
    void for_seen(size_t seen, const Gpr& count, const Body& body) {
        for (first_ = 0; first_ < vecs_; ++first_) {
            Label none;
            const auto of = [&](int w) { return ptr[args() + seen + size_t(w) * sizeof(int64_t)]; };
            mov(count, of(first_));
            if (first_ > 0)
                sub(count, of(first_ - 1));
            else
                test(count, count);
            jz(none, T_NEAR);
            body();
            L(none);
        }
        first_ = 0;
    }

    const TileKey key_;

private:
    int steps_a_line() const {
        for (int steps : {4, 2})
            if (steps * n_ * vecs_ <= key_.of_a_line) return steps;
        return 1;
    }

    const int steps_a_line_;
    const std::vector<Vec> odd_;
};

// for w0 in 0..W: for key in seen[w0 - 1]..seen[w0] step n, w in w0..W:
//   acc[n][w] = 0
//   for d in 0..D: acc[n][w] += keys[key + n][d] * query[d][w]     (of pairs: 0..D / 2, rounded up)
//   scores[key + n][w] = acc[n][w]; new_max[w] = max(new_max[w], acc[n][w])
class TileQkNumbers : public TileNumbers {
protected:
    using TileNumbers::TileNumbers;

    void load_arguments() {
        mov(keys_, ptr[args() + offsetof(TileQkArgs, keys)]);
        mov(scores_, ptr[args() + offsetof(TileQkArgs, scores)]);
        ahead_.begin(args() + offsetof(TileQkArgs, ahead));
    }
    void leave() {
        ahead_.end(args() + offsetof(TileQkArgs, ahead));
        end();
    }

    // Of n keys, products by `dims`. Leaves the zero flag of count_.
    template <typename Dims>
    void emit_keys(const Dims& dims) {
        for (const Vec& v : acc_) zero(v);
        clear_odd();
        mov(query_, ptr[args() + offsetof(TileQkArgs, query)]);
        mov(element_, keys_);
        stage("dims");
        dims();
        add_odd();
        for (int n = 0; n < n_; ++n)
            for (int w = first_; w < vecs_; ++w)
                vmovups(ptr[scores_ + n * panel_bytes() + w * vec_bytes()], acc(n, w));
        emit_new_max(acc_);
        add(keys_, n_ * key_.key_stride * 4);
        add(scores_, n_ * panel_bytes());
        sub(count_, n_);
    }

    void emit_dims() {
        if (turns() > 0) emit_turns(turns(), [](int) {});
        emit_rest();
    }

    int turns() const { return steps() / kUnroll; }

    // between(i) behind step i of each.
    template <typename Between>
    void emit_turns(int count, const Between& between) {
        Label each;
        mov(left_, count);
        begin_loop(each);
        emit_unrolled(kUnroll, between);
        dec(left_);
        jnz(each, T_NEAR);
    }

    void emit_rest() {
        emit_unrolled(steps() % kUnroll, [](int) {});
    }

    const Gpr keys_ = gpr("keys"), scores_ = gpr("scores"), count_ = gpr("count"), query_ = gpr("query"),
              element_ = gpr("element"), left_ = gpr("left");

private:
    int steps() const { return (key_.dim + key_.numbers_a_lane() - 1) / key_.numbers_a_lane(); }

    template <typename Between>
    void emit_unrolled(int dims, const Between& between) {
        for (int d = 0; d < dims; ++d) {
            emit_numbers(d, query_ + d * panel_bytes(),
                         [&](int n) { return element_ + (n * key_.key_stride + d) * 4; });
            between(d);
        }
        add(query_, dims * panel_bytes());
        add(element_, dims * 4);
    }
};

}  // namespace quire::jit
