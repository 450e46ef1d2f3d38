// Prefetches of the rows that the next block of keys will read, a few at a time (args.h: NextRows), and of
// those of a kernel's next turn.
//
// On Intel's cores each prefetch that goes to DRAM keeps one of 16 buffers of the first-level cache for some
// 600 cycles. What reads DRAM at its speed there is the second-level cache's own prefetcher, which follows a
// stream in each page of 4 KB up to its end: rows side by side are asked for in all pages of a block at a
// time, and runs at as many places of the list.
#pragma once
#include <cassert>

#include "jit/args.h"
#include "jit/row_list.h"
#include "jit/word_loader.h"

namespace quire::jit {

class Prefetch {
public:
    Prefetch(Emitter& e, const RowKey& key)
        : e_(e),
          again_(key.placement != Placement::listed && key.target->vector_bits == 512 &&
                 has_words(key.format)),
          row_bytes_(key.row_bytes()),
          spreads_(key.target->of_intel() && key.placement != Placement::listed),
          scale_bytes_(key.scale_bytes()),  // scales in the rows come with them
          rows_(e, key, row_bytes_, "next rows"),
          scales_(e, key, scale_bytes_, "next scales") {}

    // Each turn asks for so many rows, or for a multiple of them. Before set().
    void turns_of(int rows) {
        constexpr int kPage = 4096, kMost = 4;
        streams_ = 1;
        if (!spreads_) return;
        while (streams_ < kMost && kBlock * row_bytes_ >= 2 * streams_ * kPage &&
               rows * row_bytes_ % (2 * streams_ * kLine) == 0 &&
               (rows_.adjacent() || rows % (2 * streams_) == 0))
            streams_ *= 2;
    }
    // By how much so many rows move rows().here(), in bytes.
    int step(int rows) const { return rows * rows_.step() / streams_; }

    // Points at the first row. `args`: of the NextRows.
    void set(const RegExp& args, int first) {
        rows_.set(args + offsetof(NextRows, rows));
        if (scale_bytes_) scales_.set(args + offsetof(NextRows, scales));
        near_ = args + offsetof(NextRows, near);
        move(first);
    }
    void move(int rows) {
        if (rows != 0) e_.add(rows_.here(), step(rows));
        if (scale_bytes_) scales_.move(rows);
    }

    // Share `part` of `parts` of the next `rows` rows and their scales. Clobbers rax.
    void some(int rows, int part, int parts) {
        const Share share = share_of(rows, part, parts);
        if (share.begin == share.end) return;
        Label far, done;
        e_.cmp(e_.qword[near_], 0);
        e_.je(far, e_.T_NEAR);
        emit(share, true);
        e_.jmp(done, e_.T_NEAR);
        e_.L(far);
        emit(share, false);
        e_.L(done);
    }

    const RowList& rows() const { return rows_; }

    // Of what the next turn of a kernel reads, into the first-level cache; `list`: this turn's rows. What
    // `some` asked for may have left the second: rows a power of two apart share few of its sets. Clobbers
    // rax.
    void soon(const RowList& list, int rows, int part, int parts) {
        assert(rows <= kRowsSoon);
        const int total = lines(list, rows, row_bytes_);
        for (int i = part * total / parts, first = i; i < (part + 1) * total / parts; ++i)
            line(list, {rows, row_bytes_, i, i == first}, true);
    }

    // Whether a kernel is to ask again(). Where it takes longer than memory does, that costs and gains
    // nothing: numbers in floats (docs/performance.md).
    bool asks_again() const { return again_; }

    // Of rows side by side that the kernel itself will read, into the first-level cache: `some` asked for
    // them when the processor may have had as many misses under way as it can track. `list`: this turn's
    // rows; `left`: keys from them on. Clobbers rax.
    void again(const RowList& list, const Gpr& left, int rows, int part, int parts) {
        const int total = lines_of(rows * row_bytes_);
        Label done;
        e_.cmp(left, kAgain);
        e_.jbe(done, e_.T_NEAR);
        const RegExp ahead = list.at(kAgain, e_.rax);
        for (int i = part * total / parts; i < (part + 1) * total / parts; ++i)
            e_.prefetcht0(e_.ptr[ahead + i * kLine]);
        e_.L(done);
    }

private:
    struct Line {
        int behind, bytes;  // of rows of so many bytes, the first of which is so many behind
        int line;
        bool is_first;
    };

    struct Share {
        int codes, scales;  // lines of a turn
        int begin, end;     // of the lines of all turns
    };
    // Listed rows one by one, each with its scales: where they share few sets of the caches that was faster.
    Share share_of(int rows, int part, int parts) const {
        const int turns = rows_.side_by_side() ? 1 : rows;
        const int codes = lines(rows_, rows, row_bytes_) / turns,
                  scales = lines(scales_, rows, scale_bytes_) / turns;
        const int total = turns * (codes + scales);
        return {codes, scales, part * total / parts, (part + 1) * total / parts};
    }
    void emit(const Share& share, bool near) {
        const int lines = share.codes + share.scales;
        for (int i = share.begin; i < share.end; ++i) {
            const int turn = i / lines, at = i % lines;
            const bool first = i == share.begin;
            at < share.codes
                ? line(rows_, {0, row_bytes_, turn * share.codes + at, first}, near)
                : line(scales_, {0, scale_bytes_, turn * share.scales + at - share.codes, first}, near);
        }
    }

    // Rows side by side are one piece of memory, whose last line may be that of the rows behind it.
    static int lines(const RowList& list, int rows, int bytes) {
        return list.side_by_side() ? lines_of(rows * bytes) : rows * lines_of(bytes);
    }
    RegExp address_of(const RowList& list, const Line& at) {
        if (&list == &rows_ && streams_ > 1) {
            const int stream = at.line % streams_;
            const int within = at.line / streams_ * kLine;
            if (list.adjacent()) return list.here() + stream * (kBlock / streams_ * row_bytes_) + within;
            return list.at(stream * kBlock / streams_, e_.rax) + within;
        }
        if (list.adjacent()) return list.here() + at.behind * at.bytes + at.line * kLine;
        // Of a run the address of its first row here serves all, of a list each row has its own.
        const int row = list.side_by_side() ? 0 : at.line / lines_of(at.bytes);
        const int of_row = at.line - row * lines_of(at.bytes);
        if (of_row == 0 || at.is_first) list.at(at.behind + row, e_.rax);
        return e_.rax + of_row * kLine;
    }
    void line(const RowList& list, const Line& at, bool near) {
        const RegExp address = address_of(list, at);
        near ? e_.prefetcht0(e_.ptr[address]) : e_.prefetcht1(e_.ptr[address]);
    }

    static constexpr int kLine = 64;
    static constexpr int kAgain = kBlock / 4;  // rows
    static int lines_of(int bytes) { return (bytes + kLine - 1) / kLine; }

    Emitter& e_;
    const bool again_;
    const int row_bytes_;
    const bool spreads_;
    const int scale_bytes_;
    int streams_ = 1;  // places of the next rows that a turn asks for
    RegExp near_;
    RowList rows_, scales_;
};

}  // namespace quire::jit
