// One part a format: turns the bytes of a cache row into f32 lanes. Kernels only know this interface.
//
// Lane order. A loader may give a row's elements in an order of its own, when that is cheaper (int4: the even
// elements of 2L, then the odd ones). QK then permutes its query once, PV's output is un-permuted once:
// lane_element() says where everything is.
#pragma once
#include <memory>
#include <vector>

#include "jit/emitter.h"
#include "jit/row_layout.h"

namespace quire::jit {

class RowLoader {
public:
    static std::unique_ptr<RowLoader> make(Emitter& e, const quire_format& format, int dim);
    virtual ~RowLoader() = default;

    int step() const { return loader_step(format_); }
    int vecs() const { return row_vecs(format_, dim_, e_.lanes()); }
    int row_bytes() const { return (dim_ * type_bits(format_.type) + 7) / 8; }

    // Vectors `vec` .. `vec + step() - 1` of the row into out[0..step() - 1], dequantised. `scales` is the
    // address of the row's f32 scales (unused where the format has none).
    void load(const Vec* out, int vec, const RegExp& row, const RegExp& scales);

protected:
    RowLoader(Emitter& e, const quire_format& format, int dim) : e_(e), format_(format), dim_(dim) {}
    // Numbers, or codes as f32; the row has `valid` elements from there on (0 < valid <= step * lanes).
    virtual void load_numbers(const Vec* out, int first_element, int valid, const RegExp& row) = 0;

    Emitter& e_;
    const quire_format format_;
    const int dim_;

private:
    std::vector<int> groups_of(int vec) const;
    void scale(const Vec& v, const std::vector<int>& groups, const RegExp& scales);
    void load_factors(const Vec& factors, const std::vector<int>& groups, const RegExp& scales);
};

}  // namespace quire::jit
