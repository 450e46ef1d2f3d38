#include "jit/rotate.h"

#include <algorithm>
#include <cmath>

#include "src/format.h"
#include "src/half.h"

namespace quire::jit {
namespace {

class Rotate {
public:
    Rotate(Emitter& e, const Rotation& rotation, quire_type type, int dim, const RotatedRow& at)
        : e_(e), rotation_(rotation), type_(type), dim_(dim), bytes_(type_bits(type) / 8), at_(at) {}

    // for each pair of the first R elements:
    //   x', y' = x cos - y sin, y cos + x sin                                 emit_halves, emit_interleaved
    // out = x of the others                                                   emit_rest
    // for stride = 1, 2, 4, ... below the block, within vectors and across:   emit_hadamard
    //   a, b = a + b, a - b
    // out *= 1 / sqrt(block)
    void emit() {
        switch (rotation_.rotary) {
            case QUIRE_ROTARY_HALVES: emit_halves(); break;
            case QUIRE_ROTARY_INTERLEAVED: emit_interleaved(); break;
            default: break;
        }
        const bool rotary = rotation_.rotary != QUIRE_ROTARY_NONE;
        if (rotary) emit_rest();
        if (rotation_.block != 0) emit_hadamard(rotary);
    }

private:
    int lanes() const { return e_.lanes(); }
    RegExp input(int i) const { return at_.input + i * bytes_; }
    RegExp out(int i) const { return at_.out + i * 4; }

    void emit_halves() {
        e_.stage("rotary, halves");
        const int half = rotation_.rotary_dim / 2;
        Temp x(e_, "x"), y(e_, "y"), cos(e_, "cos"), sin(e_, "sin"), product(e_, "product");
        for (int i = 0; i < half; i += lanes()) {
            const int n = std::min(lanes(), half - i);
            e_.load_number(type_, x, input(i), n);
            e_.load_number(type_, y, input(half + i), n);
            e_.load_f32(cos, at_.cos + i * 4, n);
            e_.load_f32(sin, at_.sin + i * 4, n);
            e_.vmulps(product, x, sin);
            e_.vmulps(sin, y, sin);
            e_.vfmsub213ps(x, cos, sin);
            e_.vfmadd213ps(y, cos, product);
            e_.store_f32(out(i), x, n);
            e_.store_f32(out(half + i), y, n);
        }
    }

    void emit_interleaved() {
        e_.stage("rotary, interleaved");
        Temp x(e_, "x"), swapped(e_, "swapped"), factor(e_, "factor");
        for (int i = 0; i < rotation_.rotary_dim; i += lanes()) {
            const int n = std::min(lanes(), rotation_.rotary_dim - i);
            e_.load_number(type_, x, input(i), n);
            e_.swap_lanes(swapped, x, 1);
            e_.load_twice(factor, at_.sin + i * 2, n / 2);
            e_.vmulps(swapped, swapped, factor);
            e_.load_twice(factor, at_.cos + i * 2, n / 2);
            e_.vfmaddsub213ps(x, factor, swapped);  // even lanes x cos - y sin, odd ones y cos + x sin
            e_.store_f32(out(i), x, n);
        }
    }

    void emit_rest() {
        for (int i = rotation_.rotary_dim; i < dim_; i += lanes()) {
            const int n = std::min(lanes(), dim_ - i);
            Temp x(e_, "x");
            e_.load_number(type_, x, input(i), n);
            e_.store_f32(out(i), x, n);
        }
    }

    // As many vectors at a time as leave registers for the rest; strides that are longer than those vectors
    // take another pass, over vectors that are so far apart.
    void emit_hadamard(bool rotary) {
        e_.stage("hadamard");
        const int most = e_.num_vecs() / 2;
        const int vecs = (dim_ + lanes() - 1) / lanes();
        const int block_vecs = std::max(1, rotation_.block / lanes());
        for (int apart = 1; apart < block_vecs || apart == 1;) {
            const int count = std::min(most, block_vecs / apart);  // vectors of a butterfly
            const bool last = apart * count >= block_vecs;
            for (int first = 0; first < vecs; first += apart * count)
                for (int i = first; i < first + apart; ++i)
                    emit_butterflies(i, apart, std::min(count, vecs - first), rotary || apart > 1, last);
            apart *= count;
            if (last) break;
        }
    }

    // Vectors first, first + apart, ...
    void emit_butterflies(int first, int apart, int count, bool from_out, bool last) {
        std::vector<Vec> v = e_.vecs("v", count);
        Vec spare = e_.vec("spare");
        const auto element = [&](int k) { return (first + k * apart) * lanes(); };
        const auto elements = [&](int k) { return std::min(lanes(), dim_ - element(k)); };
        for (int k = 0; k < count; ++k) {
            from_out ? e_.load_f32(v[size_t(k)], out(element(k)), elements(k))
                     : e_.load_number(type_, v[size_t(k)], input(element(k)), elements(k));
            if (apart == 1) emit_within(v[size_t(k)]);
        }
        for (int stride = 1; stride < count; stride *= 2)
            for (int k = 0; k < count; ++k) {
                if (k & stride) continue;
                Vec &a = v[size_t(k)], &b = v[size_t(k + stride)];
                e_.vsubps(spare, a, b);
                e_.vaddps(a, a, b);
                std::swap(b, spare);
            }
        if (last) {
            e_.vmovups(spare, e_.splat(float(1 / std::sqrt(double(rotation_.block)))));
            for (const Vec& x : v) e_.vmulps(x, x, spare);
        }
        for (int k = 0; k < count; ++k) e_.store_f32(out(element(k)), v[size_t(k)], elements(k));
        e_.free(v);
        e_.free(spare);
    }

    // Strides below the lanes of a vector: the partner plus or minus (in the upper lane of a pair) the own
    // lane.
    void emit_within(const Vec& v) {
        for (int stride = 1; stride < std::min(lanes(), rotation_.block); stride *= 2) {
            std::vector<uint32_t> signs;
            for (int i = 0; i < lanes(); ++i) signs.push_back(float_bits(i & stride ? -1.f : 1.f));
            Temp partner(e_, "partner");
            e_.swap_lanes(partner, v, stride);
            e_.vfmadd132ps(v, partner, e_.constant(signs));  // exact product
        }
    }

    Emitter& e_;
    const Rotation rotation_;
    const quire_type type_;
    const int dim_, bytes_;
    const RotatedRow at_;
};

}  // namespace

void emit_rotate(Emitter& e, const Rotation& rotation, quire_type type, int dim, const RotatedRow& at) {
    Rotate(e, rotation, type, dim, at).emit();
}

}  // namespace quire::jit
