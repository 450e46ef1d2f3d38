// INT4 rows: two codes a byte, element 2i in the low nibble, so that the eight codes of a dword are in order
// from its lowest bits up: each lane shifts the dword by its own count.
#pragma once
#include "jit/row_loader.h"

namespace quire::jit {

class Int4RowLoader : public RowLoader {
public:
    Int4RowLoader(Emitter& e, const quire_format& format, int dim) : RowLoader(e, format, dim) {}

protected:
    void load_numbers(const Vec& out, int first_element, int valid, const RegExp& row) override {
        std::vector<uint32_t> to_top;
        for (int lane = 0; lane < e_.lanes(); ++lane) to_top.push_back(uint32_t(28 - lane % 8 * 4));
        e_.load_dword_of_eight_lanes(out, row + first_element / 2, valid / 2);
        e_.vpsllvd(out, out, e_.constant(to_top));
        e_.vpsrad(out, out, 28);
        e_.vcvtdq2ps(out, out);
    }
};

}  // namespace quire::jit
