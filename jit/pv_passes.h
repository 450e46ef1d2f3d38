// Decode: output rows += probabilities * value rows of a block. The frame of the kernel: passes over part of
// the output each, in registers; the arithmetic is a subclass's.
#pragma once
#include <vector>

#include "jit/args.h"
#include "jit/emitter.h"
#include "jit/prefetch.h"
#include "src/blocks.h"

namespace quire::jit {

// for each pass over W vectors of the value row and R' of the query rows:     emit_pass
//   acc[r][w] = output[r][w] * rescale[r], or 0                               emit_begin
//   for key in 0..count step keys_a_turn():
//     prefetch some of this pass's share of the next block                    emit_prefetches
//     acc[r][w] += weights of these keys * their values                       emit_turn
//   output[r][w] = what acc[r][w] makes of it                                 emit_end
class PvPasses : public Emitter {
protected:
    static constexpr int kUnroll = 4;
    static constexpr int kMostTemps = 4;  // beside the values: the weights, the loader's, the products'

    struct Pass {
        int row, rows, vec, width;
        int prefetch_begin, prefetch_end;  // rows of the next block
    };

    explicit PvPasses(const RowKey& key) : Emitter(*key.target), key_(key), prefetch_(*this, key) {}
    void generate();

    // Keys of one turn of the loop, which share what is not arithmetic: a divisor of kKeyPadding.
    virtual int keys_a_turn() const { return kUnroll; }
    // A pass of one vector would load a probability for each product.
    virtual int rows_a_pass() const {
        int rows = key_.rows;
        while (widest(rows) < 2) rows = (rows + 1) / 2;
        return rows;
    }
    // Whether later passes over query rows take what the first made of the values.
    virtual bool keeps_values() const { return rows_a_pass() < key_.rows; }
    virtual int widest(int rows) const = 0;  // W
    virtual int step() const { return 1; }   // of W
    // More of one or two query rows took longer on AVX2 (docs/performance.md, "Narrow passes").
    int most_width() const { return lanes() > 8 ? kMostWidth : 4; }
    virtual int sums() const { return 1; }  // registers of acc for each row and vector
    virtual int turn_bytes() const = 0;     // of the weights
    // Whether emit_turn itself asks for lines, by emit_asks: many at once are dropped.
    virtual bool asks_within() const { return false; }
    // Whether emit_end asks for half of a pass's lines, by emit_last_asks.
    virtual bool asks_at_end() const { return false; }
    virtual void emit_start() {}  // once
    virtual void emit_begin(const std::vector<Vec>& acc, const Pass& pass) = 0;
    virtual void emit_turn(const std::vector<Vec>& acc, const Pass& pass) = 0;
    virtual void emit_end(const std::vector<Vec>& acc, const Pass& pass) = 0;

    // Share `part` of `parts` of what a turn asks for.
    void emit_asks(const Pass& pass, int part, int parts);
    void emit_last_asks(const Pass& pass, int part, int parts);

    // v = entry i of the turn: what load() puts there, or in later passes over query rows what the first
    // kept.
    template <typename Load>
    void emit_values(const std::vector<Vec>& v, int i, const Pass& pass, const Load& load) {
        const auto kept = [&](size_t w) { return numbers_ + (i * pass.width + int(w)) * vec_bytes(); };
        if (pass.row == 0) load();
        for (size_t w = 0; w < v.size(); ++w) {
            if (pass.row > 0) vmovups(v[w], ptr[kept(w)]);
            if (pass.row == 0 && keeps_values()) vmovups(ptr[kept(w)], v[w]);
        }
    }

    // Of pairs of vectors, lower nibbles and upper ones: in ggml's blocks these are half a block apart, else
    // they are put in order.
    const BlockInfo* block() const { return block_info(key_.format.type); }
    int vec_of_pair(int vec) const { return block() ? half_of_32(vec) : vec; }
    // Where pairs of vectors are of the first and of the last 16 of 32 elements.
    static int half_of_32(int vec) { return vec / 4 * 4 + vec % 4 / 2 + vec % 2 * 2; }
    // Where the pair's eight bytes begin in a row.
    int bytes_of_pair(int vec) const {
        return block() ? vec / 4 * block()->bytes + block()->codes_at + vec % 4 / 2 * 8 : vec * lanes() / 2;
    }

    // Where the codes of a pair of vectors of 16 elements, from vector `vec` on, begin in a row.
    int byte_of(int vec) const {
        return block() ? vec / 2 * block()->bytes + block()->codes_at : vec * key_.row_bytes() / key_.vecs();
    }
    // Sums of such a pair as its codes are loaded (load_bytes_of_four, load_nibbles_of_four), into the row's
    // order. A block's nibbles are in it.
    void put_in_order(const Vec& a, const Vec& b) {
        if (!is_of_nibbles(key_.format)) return interleave(a, b, lanes() / 2);
        if (!block()) interleave(a, b, 1);
    }

    RegExp output_at(int row, int vec) const { return output_ + (row * key_.padded() + vec * lanes()) * 4; }

    const RowKey key_;
    Prefetch prefetch_;
    const Gpr prefetch_end_ = gpr("prefetch end"), output_ = gpr("output"), weights_ = gpr("weights"),
              scales_ = gpr("scales"), rescale_ = gpr("rescale"), count_ = gpr("count"), row_ = gpr("row"),
              numbers_ = gpr("numbers");
    RowList rows_{*this, key_, key_.row_bytes(), "rows"};

private:
    void emit_pass(const Pass& pass);
    void emit_prefetches(const Pass& pass, int part, int parts);
    void emit_own_rows_ahead(const Pass& pass, int part, int parts);
    bool asks_soon(const Pass& pass) const;
    int rows_a_turn(const Pass& pass) const;
    int turns() const { return kBlock / keys_a_turn(); }
    static bool prefetches(const Pass& pass) { return pass.prefetch_begin < pass.prefetch_end; }
};

}  // namespace quire::jit
