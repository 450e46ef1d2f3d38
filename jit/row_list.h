// Where a kernel finds the rows of a block: a list of addresses, of which those of a run stand for all that
// follow in it, or behind the first, one after the other.
#pragma once
#include <string>

#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class RowList {
public:
    // bytes: from one row to the next where they lie side by side.
    RowList(Emitter& e, const RowKey& key, int bytes, const std::string& name)
        : e_(e), placement_(key.placement), bytes_(bytes), here_(e.gpr(name)) {}

    // list: address of the list's address; of adjacent rows it holds the first alone.
    void set(const RegExp& list) {
        e_.mov(here_, e_.ptr[list]);
        if (adjacent()) e_.mov(here_, e_.ptr[here_]);
    }
    // Points where `now` does, or so many rows behind it if more than those are left.
    void follow(const RowList& now) { e_.mov(here_, now.here_); }
    void follow(const RowList& now, int rows, const Gpr& left) {
        e_.lea(here_, e_.ptr[now.here_ + rows * step()]);
        e_.cmp(left, rows);
        e_.cmove(here_, now.here_);
    }
    // Address of row i from here on; of a list in `to`, which is written.
    RegExp at(int i, const Gpr& to) const {
        if (adjacent()) return here_ + i * bytes_;
        e_.mov(to, e_.ptr[here_ + 8 * i]);
        return to;
    }
    // Begins a turn of rows that are of one run; `first`: where their address may be kept.
    void turn(const Gpr& first) {
        turn_ = first;
        if (placement_ == Placement::runs) at(0, first);
    }
    // Of row i of that turn, as at().
    RegExp in_turn(int i, const Gpr& to) const {
        return placement_ == Placement::runs ? turn_ + i * bytes_ : at(i, to);
    }
    void move(int rows) {
        if (rows != 0) e_.add(here_, rows * step());
    }
    int step() const { return adjacent() ? bytes_ : 8; }  // bytes of here() a row
    const Gpr& here() const { return here_; }
    bool adjacent() const { return placement_ == Placement::adjacent; }
    bool side_by_side() const { return placement_ != Placement::listed; }  // within a turn

private:
    Emitter& e_;
    const Placement placement_;
    const int bytes_;
    const Gpr here_;
    Gpr turn_;
};

}  // namespace quire::jit
