// INT4 rows: two codes a byte, element 2i in the low nibble, so that the eight codes of a dword are in order
// from its lowest bits up: each lane shifts the dword by its own count.
#pragma once
#include "jit/row_loader.h"

namespace quire::jit {

class Int4RowLoader : public RowLoader {
public:
    Int4RowLoader(Emitter& e, const quire_format& format, int dim) : RowLoader(e, format, dim) {}
    void hold(int spare) override { e_.hold_nibbles(spare); }

protected:
    void load_numbers(const Vec& out, int first_element, int valid, const RegExp& row) override {
        e_.load_signed_nibbles(out, row + first_element / 2, valid / 2);
    }
};

}  // namespace quire::jit
