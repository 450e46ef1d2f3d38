// Prefetches of the rows that the next block of keys will read, a few at a time (args.h: NextRows).
#pragma once
#include <cassert>

#include "jit/args.h"
#include "jit/row_list.h"

namespace quire::jit {

class Prefetch {
public:
    Prefetch(Emitter& e, const RowKey& key)
        : e_(e),
          row_bytes_(key.row_bytes()),
          scale_bytes_(key.scale_bytes()),  // scales in the rows come with them
          rows_(e, key, row_bytes_, "next rows"),
          scales_(e, key, scale_bytes_, "next scales") {}

    // Points at the first row. `args`: of the NextRows.
    void set(const RegExp& args, int first) {
        rows_.set(args + offsetof(NextRows, rows));
        if (scale_bytes_) scales_.set(args + offsetof(NextRows, scales));
        near_ = args + offsetof(NextRows, near);
        move(first);
    }
    void move(int rows) {
        rows_.move(rows);
        if (scale_bytes_) scales_.move(rows);
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

    const RowList& rows() const { return rows_; }

    // Share `part` of `parts` of what the next turn of a kernel reads, into the first-level cache; `list`:
    // this turn's rows. What `some` asked for may have left the second: rows a power of two apart share few
    // of its sets. Clobbers rax.
    void soon(const RowList& list, int rows, int part, int parts) {
        assert(rows <= kRowsSoon);
        const int of_row = lines_of(row_bytes_), total = rows * of_row, first = part * total / parts;
        for (int i = first; i < (part + 1) * total / parts; ++i)
            line_of(list, row_bytes_, {rows, i / of_row, i % of_row, i == first}, true);
    }

private:
    struct Line {
        int behind, row, line;  // of row `behind` + `row`
        bool is_first;
    };

    void emit(int first, int end, bool near) {
        const int of_row = lines_of(row_bytes_);
        for (int i = first; i < end; ++i) {
            const int row = i / lines(), line = i % lines();
            if (line < of_row)
                line_of(rows_, row_bytes_, {0, row, line, i == first}, near);
            else
                line_of(scales_, scale_bytes_, {0, row, line - of_row, i == first}, near);
        }
    }

    // Adjacent rows are lines one after the other, each asked for once.
    void line_of(const RowList& list, int bytes, const Line& at, bool near) {
        RegExp address;
        if (list.adjacent()) {
            const int line = (at.row * bytes + at.line * kLine) / kLine;
            const int before = at.line > 0 ? line - 1 : ((at.row - 1) * bytes) / kLine + lines_of(bytes) - 1;
            if (at.row > 0 && line <= before) return;
            address = list.here() + at.behind * bytes + line * kLine;
        } else {
            if (at.line == 0 || at.is_first) list.at(at.behind + at.row, e_.rax);
            address = e_.rax + at.line * kLine;
        }
        near ? e_.prefetcht0(e_.ptr[address]) : e_.prefetcht1(e_.ptr[address]);
    }

    static constexpr int kLine = 64;
    static int lines_of(int bytes) { return (bytes + kLine - 1) / kLine; }

    Emitter& e_;
    const int row_bytes_, scale_bytes_;
    RegExp near_;
    RowList rows_, scales_;
};

}  // namespace quire::jit
