// Decode: scores of R query rows against a block of key rows. The frame of the kernel; the arithmetic of its
// products is a subclass's.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/prefetch.h"

namespace quire::jit {

// for key in 0..count step T, what is left one by one:                       emit_tiles
//   for each pass over some of the query rows:                               emit_pass
//     for each part of the row:
//       prefetch its share of T rows of the next block, in the first pass    emit_prefetches
//       acc[r][t] += lane by lane query[r] * rows[key + t]                   emit_products
//     scores[r][key + t] = sum of the lanes of acc[r][t]                     emit_sums
//   or, late: they are kept, and those of kLate keys are summed at once      emit_late_sums
// what is left to do with the scores                                         emit_end
class QkTiles : public Emitter {
protected:
    explicit QkTiles(const RowKey& key) : Emitter(*key.target), key_(key), prefetch_(*this, key) {}
    void generate();

    struct Pass {
        int row, rows;
    };

    virtual int tile() const = 0;           // T: 1, 2, 3, 4 or 6
    virtual int parts() const = 0;          // of a row
    virtual bool fits(int rows) const = 0;  // a pass, with one key at least
    int rows_a_pass() const {
        int rows = key_.rows;
        while (!fits(rows)) rows = (rows + 1) / 2;
        return rows;
    }
    virtual void emit_products(const std::vector<Vec>& acc, int tokens, int part, const Pass& pass) = 0;
    virtual void emit_end() {}
    // What is done to four sums, of the accumulators first .. first + 3 of r * tokens + t.
    virtual void emit_factors(const Xbyak::Xmm& sums, int first, int tokens) = 0;
    // Whether sums are late: eight of a row, from memory, take 23 instructions, where four of a tile take 18.
    virtual bool late() const { return false; }
    virtual void emit_factor(const Vec&, int) {}  // what is done to late sums of a row

    RegExp scales_of(int token) const { return scales_ + token * key_.scales_stride() * 4; }

    const RowKey key_;
    Prefetch prefetch_;
    const Gpr query_ = gpr("query"), scales_ = gpr("scales"), scores_ = gpr("scores"), count_ = gpr("count");
    Gpr numbers_;  // where there are several passes or late sums, of which it is the key's
    RowList rows_{*this, key_, key_.row_bytes(), "rows"};
    std::vector<RegExp> row_;  // [T] of the tile at hand

private:
    static constexpr int kLate = 8;
    static_assert(kKeyPadding % kLate == 0 && kMaxDecodeRows * kLate <= kMostNumbers);

    std::vector<Gpr> address_;  // [T]

    void emit_tiles(int tokens);
    void emit_pass(int tokens, const Pass& pass);
    void emit_prefetches(int tokens, int part);
    void emit_sums(const std::vector<Vec>& acc, int tokens, const Pass& pass);
    void emit_keep(const std::vector<Vec>& acc, int tokens, const Pass& pass);
    void emit_late_sums();
    void emit_store_sums(const Xbyak::Xmm& sums, int begin, int first, int n, int tokens);
};

}  // namespace quire::jit
