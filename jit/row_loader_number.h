// F32, F16 and BF16 rows: value = number.
#pragma once
#include "jit/row_loader.h"

namespace quire::jit {

class NumberRowLoader : public RowLoader {
public:
    NumberRowLoader(Emitter& e, const quire_format& format, int dim) : RowLoader(e, format, dim) {}

protected:
    void load_numbers(const Vec& out, int first_element, int valid, const RegExp& row) override {
        e_.load_number(format_.type, out, row + first_element * type_bits(format_.type) / 8, valid);
    }
};

}  // namespace quire::jit
