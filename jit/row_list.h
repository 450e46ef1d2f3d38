// Where a kernel finds the rows of a block: a list of addresses, or behind the first, one after the other.
#pragma once
#include <string>

#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class RowList {
public:
    // bytes: from one row to the next where they are adjacent.
    RowList(Emitter& e, const RowKey& key, int bytes, const std::string& name)
        : e_(e), bytes_(key.adjacent ? bytes : 0), here_(e.gpr(name)) {}

    // list: address of the list's address; of adjacent rows it holds the first alone.
    void set(const RegExp& list) {
        e_.mov(here_, e_.ptr[list]);
        if (bytes_ != 0) e_.mov(here_, e_.ptr[here_]);
    }
    // Address of row i from here on; of a list in `to`, which is written.
    RegExp at(int i, const Gpr& to) const {
        if (bytes_ != 0) return here_ + i * bytes_;
        e_.mov(to, e_.ptr[here_ + 8 * i]);
        return to;
    }
    void move(int rows) {
        if (rows != 0) e_.add(here_, rows * step());
    }
    int step() const { return bytes_ != 0 ? bytes_ : 8; }  // bytes of here() a row
    const Gpr& here() const { return here_; }
    bool adjacent() const { return bytes_ != 0; }

private:
    Emitter& e_;
    const int bytes_;
    const Gpr here_;
};

}  // namespace quire::jit
