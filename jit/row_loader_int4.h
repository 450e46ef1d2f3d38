// INT4 rows: two codes a byte, element 2i in the low nibble. A byte a lane gives the even elements of 2L from
// its low nibble and the odd ones from its high nibble: that is this format's lane order.
#pragma once
#include "jit/row_loader.h"

namespace quire::jit {

class Int4RowLoader : public RowLoader {
public:
    Int4RowLoader(Emitter& e, const quire_format& format, int dim) : RowLoader(e, format, dim) {}

protected:
    void load_numbers(const Vec* out, int first_element, int valid, const RegExp& row) override {
        const Vec even = out[0], odd = out[1];
        e_.load_i8(odd, row + first_element / 2, valid / 2);
        e_.vpslld(even, odd, 28);  // the low nibble's sign bit to bit 31
        e_.vpsrad(even, even, 28);
        e_.vpsrad(odd, odd, 4);
        e_.vcvtdq2ps(even, even);
        e_.vcvtdq2ps(odd, odd);
    }
};

}  // namespace quire::jit
