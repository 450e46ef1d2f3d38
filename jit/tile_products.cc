#include "jit/tile_products.h"

#include <cstddef>

#include "jit/tile_amx.h"
#include "jit/tile_product.h"

namespace quire::jit {
namespace {

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
class TileQk : public TileNumbers {
public:
    explicit TileQk(const TileKey& key) : TileNumbers(key) {
        begin();
        mov(keys_, ptr[args() + offsetof(TileQkArgs, keys)]);
        mov(scores_, ptr[args() + offsetof(TileQkArgs, scores)]);
        ahead_.begin(args() + offsetof(TileQkArgs, ahead));
        for_seen(offsetof(TileQkArgs, seen), count_, [&] { emit_keys(); });
        ahead_.end(args() + offsetof(TileQkArgs, ahead));
        end();
    }

private:
    void emit_keys() {
        Label each;
        L(each);
        for (const Vec& v : acc_) zero(v);
        clear_odd();
        mov(query_, ptr[args() + offsetof(TileQkArgs, query)]);
        emit_dims();
        add_odd();
        for (int n = 0; n < n_; ++n)
            for (int w = first_; w < vecs_; ++w)
                vmovups(ptr[scores_ + n * panel_bytes() + w * vec_bytes()], acc(n, w));
        emit_new_max(acc_);
        add(keys_, n_ * key_.key_stride * 4);
        add(scores_, n_ * panel_bytes());
        sub(count_, n_);
        jnz(each, T_NEAR);
    }

    void emit_dims() {
        stage("dims");
        const int lanes = (key_.dim + key_.numbers_a_lane() - 1) / key_.numbers_a_lane();
        const int whole = lanes / kUnroll;
        mov(element_, keys_);
        if (whole > 0) {
            Label each;
            mov(left_, whole);
            begin_loop(each);
            emit_unrolled(kUnroll);
            dec(left_);
            jnz(each, T_NEAR);
        }
        emit_unrolled(lanes % kUnroll);
    }

    void emit_unrolled(int dims) {
        for (int d = 0; d < dims; ++d) {
            emit_numbers(d, query_ + d * panel_bytes(),
                         [&](int n) { return element_ + (n * key_.key_stride + d) * 4; });
        }
        add(query_, dims * panel_bytes());
        add(element_, dims * 4);
    }

    const Gpr keys_ = gpr("keys"), scores_ = gpr("scores"), count_ = gpr("count"), query_ = gpr("query"),
              element_ = gpr("element"), left_ = gpr("left");
};

// for d in 0..8 * panels step n:
//   acc[n][w] = output[d + n][w] * rescale[w]
//   for w0 in 0..W: for key in seen[w0 - 1]..seen[w0], w in w0..W:     (or pairs of keys)
//     acc[n][w] += values[d + n of key] * probabilities[key][w]
//   output[d + n][w] = acc[n][w]
class TilePv : public TileNumbers {
public:
    explicit TilePv(const TileKey& key) : TileNumbers(key) {
        begin();
        mov(output_, ptr[args() + offsetof(TilePvArgs, output)]);
        mov(panel_, ptr[args() + offsetof(TilePvArgs, values)]);
        mov(panels_, ptr[args() + offsetof(TilePvArgs, panels)]);
        ahead_.begin(args() + offsetof(TilePvArgs, ahead));
        Label each_panel;
        L(each_panel);
        for (int d = 0; d < kValuePanel; d += n_) emit_dims(d);
        add(output_, kValuePanel * panel_bytes());
        add(panel_, (key_.bfloats() ? kPairPanelStride : kPanelStride) * 4);
        dec(panels_);
        jnz(each_panel, T_NEAR);
        ahead_.end(args() + offsetof(TilePvArgs, ahead));
        end();
    }

private:
    RegExp output_at(int d, int w) const { return output_ + d * panel_bytes() + w * vec_bytes(); }

    void emit_dims(int d) {
        stage("dims");
        begin_sums(acc_, rescale_, [&](int n, int w) { return output_at(d + n, w); });
        clear_odd();
        mov(probabilities_, ptr[args() + offsetof(TilePvArgs, probabilities)]);
        lea(value_, ptr[panel_ + d * 4]);
        for_seen(offsetof(TilePvArgs, seen), count_, [&] {
            emit_each(kUnroll);
            emit_each(1);
        });
        add_odd();
        for (int n = 0; n < n_; ++n)
            for (int w = 0; w < vecs_; ++w) vmovups(ptr[output_at(d + n, w)], acc(n, w));
    }

    // For as many of them as count_ has.
    void emit_each(int keys) {
        const int of_count = keys * key_.numbers_a_lane();
        Label each, rest;
        begin_loop(each);
        sub(count_, of_count);
        jl(rest, T_NEAR);
        emit_keys(keys);
        jmp(each, T_NEAR);
        L(rest);
        add(count_, of_count);
    }

    void emit_keys(int keys) {  // or pairs
        for (int i = 0; i < keys; ++i) {
            emit_numbers(i, probabilities_ + i * panel_bytes(),
                         [&](int n) { return value_ + (i * kValuePanel + n) * 4; });
        }
        add(probabilities_, keys * panel_bytes());
        add(value_, keys * kValuePanel * 4);
    }

    const Gpr output_ = gpr("output"), panel_ = gpr("panel"), panels_ = gpr("panels"),
              rescale_ = gpr("rescale"), probabilities_ = gpr("probabilities"), count_ = gpr("count"),
              value_ = gpr("value");
};

}  // namespace

Status generate_tile_qk(const TileKey& key, std::vector<uint8_t>* code) {
    return key.bfloats() && key.target->amx ? generate_tile_qk_amx(key, code) : TileQk(key).finish(code);
}
Status generate_tile_pv(const TileKey& key, std::vector<uint8_t>* code) {
    return key.bfloats() && key.target->amx ? generate_tile_pv_amx(key, code) : TilePv(key).finish(code);
}

}  // namespace quire::jit
