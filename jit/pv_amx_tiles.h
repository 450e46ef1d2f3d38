// Decode by tiles of AMX: what is made of values once they are tiles in scratch, those of rows (jit/pv_amx.h)
// and those of blocks of tokens.
#pragma once
#include <functional>
#include <vector>

#include "jit/emitter.h"
#include "jit/kernel_key.h"
#include "jit/weights_amx.h"

namespace quire::jit {

// A chunk is of some tiles of 16 columns, and of all keys. Where its tiles are complete (end_chunk):
//   of the chunk before, whose products have had that time, for each row r of its last part:
//     output[r] = output[r] * rescale[r] + (digits of sums[tile]) * unit * factors[r]          emit_outputs
//   for each part of the rows, each tile, each up to 16 rows of weights:
//     sums[tile] = weights of both steps * tile                                                emit_products
//   and of all parts but the last, or in the last chunk of all: the outputs
//
// Few tiles, so that scratch stays in the first-level cache beside the values, and few products at a time,
// which run beside the next chunk: the processor looks only so far behind instructions that wait.
//
// 128 * 128 * kBlock keys: 2^21, and 2^29 as higher digits' sums are.
class PvAmxTiles {
public:
    struct Registers {
        Gpr numbers, weights, scales, output, rescale;  // as PvArgs has them
        Gpr at;                                         // place in tiles, of the next keys
        Gpr sums_at, output_row, number_at;             // set anew by end_chunk
    };

    PvAmxTiles(Emitter& e, const RowKey& key);
    void set_up(const Registers& registers);  // numbers is set by the kernel
    // Asks for lines, share `part` of `parts` of what there is for the end of a chunk.
    using Ask = std::function<void(int part, int parts)>;

    const ValueAmx& form() const { return form_; }

    void begin_chunk() { e_.xor_(use_.at, use_.at); }
    // Of a chunk's tile the row of four keys of the turn, which has kKeyPadding of them.
    RegExp row_at(int tile, int four) const {
        return use_.numbers + use_.at + tile * kTileBytes + 4 * four * ValueAmx::kRowBytes;
    }
    void next_turn();
    void end_chunk(int chunk, const Ask& ask = nullptr);

private:
    using Tmm = Xbyak::Tmm;
    static constexpr int kTileRows = ValueAmx::kTileRows, kTileBytes = ValueAmx::kTileBytes;

    // Sums of up to 16 rows of weights and one tile of values. Bytes from the beginning of weights, the
    // others of scratch.
    struct Item {
        int weights, values, sums;
    };
    std::vector<Item> items_of(int chunk, int part) const;
    void emit_products(int chunk, int part, const Ask& ask);
    void emit_outputs(int chunk, int part);
    void emit_run(const std::vector<int>& groups, int tile, int part, const Vec& rescale);
    void emit_number(const Vec& number, int tile, const std::vector<int>& groups, int part);
    template <typename Load>
    void for_each_group(const Vec& v, const std::vector<int>& groups, const Load& load);

    Address rows_at(const RegExp& at) const { return e_.ptr[at + row_bytes_]; }
    static Xbyak::Opmask from_four(int i) { return Xbyak::Opmask(3 + i); }  // columns from 4 i on
    // Rows of weights of a set of groups.
    int rows_of(const std::vector<int>& groups, int part) const {
        return (groups.back() - groups.front() + 1) * form_.digits * form_.rows_of(part);
    }
    // Of fewer rows what is behind them is multiplied, too, and not used.
    int sums_at(int tile, int row) const {
        return form_.sums_at() + tile * form_.sums_bytes(form_.rows_a_part) + row * ValueAmx::kRowBytes;
    }

    Emitter& e_;
    const int padded_;  // floats of an output row
    const ValueAmx form_;
    Registers use_;
    const Gpr row_bytes_;
};

}  // namespace quire::jit
