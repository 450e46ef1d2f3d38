// One part a format: turns the bytes of a cache row into f32 lanes. Kernels only know this interface.
#pragma once
#include <memory>
#include <vector>

#include "jit/emitter.h"
#include "src/format.h"

namespace quire::jit {

class RowLoader {
public:
    static std::unique_ptr<RowLoader> make(Emitter& e, const quire_format& format, int dim);
    virtual ~RowLoader() = default;

    int vecs() const { return (dim_ + e_.lanes() - 1) / e_.lanes(); }

    // Vector `vec` of the row, dequantised; needs one register more while it works. `scales` is the address
    // of the row's f32 scales (args.h: ScalesArgs; unused where the format has none).
    void load(const Vec& out, int vec, const RegExp& row, const RegExp& scales);
    // Keeps constants in registers, where more than `spare` are free: until Emitter::drop_held().
    virtual void hold(int /*spare*/) {}
    // The same as load, but for the scales.
    void load_codes(const Vec& out, int vec, const RegExp& row);

protected:
    RowLoader(Emitter& e, const quire_format& format, int dim) : e_(e), format_(format), dim_(dim) {}
    // Numbers, or codes as f32; the row has `valid` elements from there on (0 < valid <= lanes).
    virtual void load_numbers(const Vec& out, int first_element, int valid, const RegExp& row) = 0;
    // What is done to the codes of vector `vec`; where there are groups: * scale.
    virtual void scale(const Vec& v, int vec, const RegExp& scales);

    Emitter& e_;
    const quire_format format_;
    const int dim_;

private:
    std::vector<int> groups_of(int vec) const;
};

}  // namespace quire::jit
