// INT8 rows: value = code * scale of its group.
#pragma once
#include "jit/row_loader.h"

namespace quire::jit {

class Int8RowLoader : public RowLoader {
public:
    Int8RowLoader(Emitter& e, const quire_format& format, int dim) : RowLoader(e, format, dim) {}

protected:
    void load_numbers(const Vec& out, int first_element, int valid, const RegExp& row) override {
        e_.load_i8(out, row + first_element, valid);
        e_.vcvtdq2ps(out, out);
    }
};

}  // namespace quire::jit
