// Prefetches of the rows that the next block of keys will read, a few at a time (args.h: NextRows).
#pragma once
#include <cassert>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

class Prefetch {
public:
    Prefetch(Emitter& e, const RowKey& key) : e_(e), row_bytes_(key.row_bytes()) {
        if (is_quantised(key.format))  // scales in the rows come with them
            scale_bytes_ = key.groups() * type_bits(key.format.scale_type) / 8;
    }

    // Points at the first row. `args`: of the NextRows.
    void set(const RegExp& args, int first) {
        e_.mov(rows_, e_.ptr[args + offsetof(NextRows, rows)]);
        if (scale_bytes_) e_.mov(scales_, e_.ptr[args + offsetof(NextRows, scales)]);
        near_ = args + offsetof(NextRows, near);
        move(first);
    }
    void move(int rows) {
        if (rows == 0) return;
        e_.add(rows_, 8 * rows);
        if (scale_bytes_) e_.add(scales_, 8 * rows);
    }

    // Lines of a row and its scales; the first of them may be shared with the row before.
    int lines() const { return lines_of(row_bytes_) + lines_of(scale_bytes_); }
    // Lines first .. end of those of the rows from here on. Clobbers rax.
    void some(int first, int end) {
        Label far, done;
        e_.cmp(e_.qword[near_], 0);
        e_.je(far, e_.T_NEAR);
        emit(first, end, true);
        e_.jmp(done, e_.T_NEAR);
        e_.L(far);
        emit(first, end, false);
        e_.L(done);
    }

    const Gpr& rows() const { return rows_; }

    // Share `part` of `parts` of what the next turn of a kernel reads, into the first-level cache; `list`:
    // the addresses of this turn's rows. What `some` asked for may have left the second: rows a power of two
    // apart share few of its sets. Clobbers rax.
    void soon(const Gpr& list, int rows, int part, int parts) {
        assert(rows <= kRowsSoon);
        const int lines = lines_of(row_bytes_), total = rows * lines, first = part * total / parts;
        for (int i = first; i < (part + 1) * total / parts; ++i) {
            if (i % lines == 0 || i == first) e_.mov(e_.rax, e_.ptr[list + 8 * (rows + i / lines)]);
            e_.prefetcht0(e_.ptr[e_.rax + i % lines * kLine]);
        }
    }

private:
    void emit(int first, int end, bool near) {
        const int of_row = lines_of(row_bytes_);
        for (int i = first; i < end; ++i) {
            const int line = i % lines(), at = line < of_row ? line : line - of_row;
            if (at == 0 || i == first)
                e_.mov(e_.rax, e_.ptr[(line < of_row ? rows_ : scales_) + 8 * (i / lines())]);
            const Address address = e_.ptr[e_.rax + at * kLine];
            near ? e_.prefetcht0(address) : e_.prefetcht1(address);
        }
    }

    static constexpr int kLine = 64;
    static int lines_of(int bytes) { return (bytes + kLine - 1) / kLine; }

    Emitter& e_;
    const int row_bytes_;
    int scale_bytes_ = 0;
    RegExp near_;
    const Gpr rows_ = e_.gpr("next rows"), scales_ = e_.gpr("next scales");
};

}  // namespace quire::jit
